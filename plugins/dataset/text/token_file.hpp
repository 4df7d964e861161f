// A read-only file of tokens, mapped into memory: plain bytes, nanoGPT's headerless uint16, or llm.c's header
// and uint16 or uint32 tokens. All integers are little-endian. Sizes and headers are checked when it is
// opened, every token by check_tokens(); a file that shrinks afterwards ends the process, as with any
// mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tenon::text {

class TokenFile {
 public:
  /// format: auto, bytes, nanogpt, llmc. `auto` reads a .bin file as llm.c if it starts with a magic number
  /// of llm.c, otherwise as nanoGPT; any other file is bytes. Throws Error(kConfig) with the expected and
  /// actual values.
  TokenFile(const std::string& path, std::string_view format);
  ~TokenFile();
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;

  const std::string& path() const { return path_; }
  std::string_view format() const { return format_; }
  std::int64_t size() const { return count_; }
  /// All bytes of the file; valid as long as it.
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(data_), static_cast<std::size_t>(bytes_)};
  }
  bool plain_bytes() const { return width_ == 1; }
  /// Vocabulary of the usual tokenizer of this format: 256, 50257 (GPT-2) or 128256 (Llama 3).
  std::int64_t usual_vocabulary() const { return width_ == 1 ? 256 : width_ == 2 ? 50257 : 128256; }

  /// 0 <= position < size().
  std::uint32_t token(std::int64_t position) const noexcept {
    const std::byte* at = tokens_ + position * width_;
    std::uint32_t value = 0;
    std::memcpy(&value, at, width_);
    return value;
  }
  /// out[i] = token(first + i).
  void copy(std::int64_t first, std::int64_t count, std::int32_t* out) const noexcept;
  /// Throws Error(kConfig) that names the first token outside [0, vocabulary).
  void check_tokens(std::int64_t vocabulary) const;

 private:
  void map();
  void recognise(std::string_view format);
  void read_llmc_header();

  std::string path_;
  std::string_view format_;
  const std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  const std::byte* tokens_ = nullptr;
  std::int64_t count_ = 0;
  int width_ = 1;
};

}  // namespace tenon::text
