// Files of tokens and a data set made from TOML, for the tests of this folder.
#pragma once

#include "text.hpp"

#include <tenon/config.hpp>
#include <tenon/testing/folders.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::text {

using FileTest = testing::FolderTest;

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

using testing::error_of;

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
