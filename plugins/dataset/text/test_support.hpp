// Files of tokens and a data set made from TOML, for the tests of this folder.
#pragma once

#include "text.hpp"

#include <tenon/config.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace tenon::text {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "tenon_text_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }

  std::string folder_;
};

/// Little-endian bytes of numbers.
template <typename Integer>
std::string bytes_of(const std::vector<Integer>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Integer)};
}

inline std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header);
}

/// What `open` or a constructor throws.
template <typename Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error.what();
  }
  return "no error";
}

/// The component with its options.
struct Made {
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<Text> text;
  Text* operator->() const { return text.get(); }
};

inline Made make_text(const std::string& toml) {
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  Made made;
  made.options =
      resolve_options(
          OptionRequest{.table = config.root(), .owner = "data.text", .specs = option_list(Text::kOptions)})
          .options;
  made.text = std::make_unique<Text>(*made.options);
  return made;
}

/// One batch and its memory.
struct Batch {
  explicit Batch(const Text& text)
      : context(text.info().tokens_per_sample),
        tokens(static_cast<std::size_t>(text.batch() * context), -7),
        targets(tokens),
        views{TensorView{tokens.data(), Shape{text.batch(), context}, DType::kI32},
              TensorView{targets.data(), Shape{text.batch(), context}, DType::kI32}} {}
  Batch(const Batch&) = delete;

  std::vector<std::int32_t> row(const std::vector<std::int32_t>& field, std::int64_t i) const {
    return {field.begin() + i * context, field.begin() + (i + 1) * context};
  }

  std::int64_t context;
  std::vector<std::int32_t> tokens, targets;
  std::vector<TensorView> views;
};

}  // namespace tenon::text
