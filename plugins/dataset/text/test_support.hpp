// Files of tokens and a data set made from TOML, for the tests of this folder.
#pragma once

#include "text.hpp"

#include <tenon/config.hpp>
#include <tenon/testing/components.hpp>
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

/// A small tokenizer: bytes, and a few longer words that are taken greedily. Token 259 ends a text, if any
/// does.
class Words final : public Tokenizer {
 public:
  static constexpr std::int32_t kEnd = 259;
  explicit Words(bool ends = true, char digest = 'a') : ends_(ends), digest_(64, digest) {}
  std::int64_t vocabulary() const override { return 260; }
  std::int32_t end_of_text() const override { return ends_ ? kEnd : -1; }
  std::span<const SpecialToken> special() const override { return {&special_, ends_ ? 1u : 0u}; }
  std::string_view token_bytes(std::int32_t id) const override { return texts_.at(id); }
  std::string_view digest() const override { return digest_; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    ++calls;
    std::vector<std::int32_t> ids;
    while (!text.empty()) {
      std::int32_t id = static_cast<unsigned char>(text[0]);
      for (std::int32_t word = 256; word < kEnd; ++word) {
        if (text.starts_with(texts_[word])) id = word;
      }
      ids.push_back(id);
      text.remove_prefix(texts_[id].size());
    }
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) text += token_bytes(id);
    return text;
  }
  void* query(std::string_view) override { return nullptr; }

  mutable int calls = 0;  ///< of encode

 private:
  static std::vector<std::string> all_texts() {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.insert(texts.end(), {"the ", "word", "\xC3\xA9", "<|end|>"});
    return texts;
  }

  bool ends_;
  std::string digest_;
  std::vector<std::string> texts_ = all_texts();
  SpecialToken special_{"<|end|>", kEnd};
};

/// Knows one component: a tokenizer without options.
class TokenizerCatalog final : public ComponentCatalog {
 public:
  ComponentSchema describe(std::string_view, std::string_view) const override {
    return {"tokenizer.words", {}};
  }
};

/// A data set with its options and host.
template <typename Data>
struct Opened {
  std::unique_ptr<testing::QuietHost> host = std::make_unique<testing::QuietHost>();
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<Data> text;
  Data* operator->() const { return text.get(); }
};
using Made = Opened<Text>;

/// `tokenizer` is the component that `tokenizer = {type = "words"}` names.
template <typename Data = Text>
Opened<Data> make_text(const std::string& toml, Tokenizer* tokenizer = nullptr) {
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  const TokenizerCatalog catalog;
  Opened<Data> made;
  made.options = resolve_options(OptionRequest{.table = config.root(),
                                               .owner = "data." + std::string(Data::kInfo.id),
                                               .specs = option_list(Data::kOptions),
                                               .catalog = &catalog})
                     .options;
  for (const auto& [name, inner] : made.options->inner()) inner->instance = {tokenizer, [](void*) {}};
  made.text = std::make_unique<Data>(*made.options, *made.host);
  return made;
}

/// One batch and its memory.
struct Batch {
  explicit Batch(const Dataset& text)
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
