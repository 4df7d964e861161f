// IDX files in a temporary folder and a data set made from TOML, for the tests of this folder.
#pragma once

#include "mnist.hpp"

#include <tenon/config.hpp>
#include <tenon/testing/folders.hpp>

#include <zlib.h>

#include <memory>
#include <string>
#include <vector>

namespace tenon::mnist {

class FileTest : public testing::FolderTest {
 protected:
  std::string write_gzip(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_ + "/" + name;
    const gzFile file = ::gzopen(path.c_str(), "wb9");
    EXPECT_EQ(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    ::gzclose(file);
    return path;
  }
};

/// Returns an IDX file of unsigned bytes.
inline std::string idx(const std::vector<std::uint32_t>& extents, const std::string& elements) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  }
  return bytes + elements;
}

using testing::error_of;

/// The component with its options.
struct Made {
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<Mnist> data;
  Mnist* operator->() const { return data.get(); }
};

inline Made make_mnist(const std::string& toml) {
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  Made made;
  made.options =
      resolve_options(
          OptionRequest{.table = config.root(), .owner = "data.mnist", .specs = option_list(Mnist::kOptions)})
          .options;
  made.data = std::make_unique<Mnist>(*made.options);
  return made;
}

/// One batch and its memory.
struct Batch {
  explicit Batch(const Mnist& data)
      : pixels(data.info().fields[0].shape.elements()),
        images(static_cast<std::size_t>(data.batch() * pixels), -7.0f),
        labels(static_cast<std::size_t>(data.batch()), -7) {
    const Shape& image = data.info().fields[0].shape;
    views = {TensorView{images.data(), Shape{data.batch(), 1, image[1], image[2]}, DType::kF32},
             TensorView{labels.data(), Shape{data.batch()}, DType::kI32}};
  }
  Batch(const Batch&) = delete;

  std::vector<float> image(std::int64_t row) const {
    return {images.begin() + row * pixels, images.begin() + (row + 1) * pixels};
  }

  std::int64_t pixels;
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  std::vector<TensorView> views;
};

}  // namespace tenon::mnist
