// Text as bytes: the id of a token is its byte. What data sets of plain text use where no tokenizer is named,
// and the tokenizer of type `bytes`.
#pragma once

#include <tenon/error.hpp>
#include <tenon/tokenizer.hpp>

#include <array>
#include <string>

TENON_ABI_BEGIN

class ByteTokenizer : public Tokenizer {
 public:
  static constexpr std::int64_t kBytes = 256;
  /// SHA-256 of "tenon bytes".
  static constexpr std::string_view kDigest =
      "fe3372bcc8b4d93e65e5570bc309aef4f5411a69a842aab36a59618f6d2f05ce";

  ByteTokenizer() {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
  }
  std::int64_t vocabulary() const override { return kBytes; }
  std::int32_t end_of_text() const override { return -1; }
  std::span<const SpecialToken> special() const override { return {}; }
  std::string_view token_bytes(std::int32_t id) const override {
    check(id);
    return {bytes_.data() + id, 1};
  }
  std::string_view digest() const override { return kDigest; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const std::int32_t id : ids) text += token_bytes(id);
    return text;
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static void check(std::int32_t id) {
    if (id < 0 || id >= kBytes)
      fail_run("token " + std::to_string(id) + " is outside of the vocabulary: expected 0 to 255, a byte");
  }
  std::array<char, kBytes> bytes_;
};

TENON_ABI_END
