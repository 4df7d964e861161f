// Bytes of text that each token of a vocabulary stands for, from llm.c's file of a tokenizer: a header of
// 256 int32 {magic, version, count, end of text, 0, ...}, then for each token its length in one byte and its
// bytes. All integers are little-endian. It neither encodes nor decodes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

class TokenBytes {
 public:
  /// Throws Error(kConfig) with the expected and actual values.
  explicit TokenBytes(const std::string& path);
  /// `content` is that of `path`, which messages name.
  TokenBytes(std::string path, std::string_view content);

  const std::string& path() const { return path_; }
  /// Tokens of the vocabulary.
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// 0 <= token < size(). The token that ends a text separates texts and is no byte of any.
  std::int64_t of(std::int64_t token) const noexcept { return bytes_[token]; }

 private:
  void read(std::string_view content);

  std::string path_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace tenon::text
