// Reading of token_bytes.hpp: every length is checked against the end of the file, and nothing may follow the
// last token.
#include "token_bytes.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace tenon::text {
namespace {

constexpr std::int32_t kTokenizerMagic = 20240328;
constexpr std::size_t kTokenizerHeader = 1024;
/// The token of GPT-2's vocabulary, which version 1 does not name.
constexpr std::int32_t kGpt2EndOfText = 50256;
/// 16 times as many tokens as the largest known vocabularies have, each as long as a length can say.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 22;
constexpr std::int64_t kLargestTokenizer = kMostTokens * 256;

}  // namespace

TokenBytes::TokenBytes(const std::string& path) : path_(path) {
  const auto files = make_posix_files();
  std::string content;
  try {
    content = read_text(*files, path, kLargestTokenizer);
  } catch (const Error& error) {
    fail_config(fmt::format("tokenizer file '{}': {}", path, error.what()));
  }
  read(content);
}

TokenBytes::TokenBytes(std::string path, std::string_view content) : path_(std::move(path)) {
  read(content);
}

void TokenBytes::read(std::string_view content) {
  const auto refuse = [this](const std::string& why) {
    fail_config(fmt::format("tokenizer file '{}': {}", path_, why));
  };
  if (content.size() < kTokenizerHeader)
    refuse(fmt::format("expected an llm.c header of {} bytes, found a file of {} bytes", kTokenizerHeader,
                       content.size()));
  std::int32_t header[4] = {};
  std::memcpy(header, content.data(), sizeof header);
  const auto [magic, version, count, end_of_text] = header;
  if (magic != kTokenizerMagic)
    refuse(
        fmt::format("expected the magic number {} of llm.c's tokenizers, found {}", kTokenizerMagic, magic));
  if (version != 1 && version != 2) refuse(fmt::format("expected version 1 or 2, found {}", version));
  if (count < 1 || count > kMostTokens)
    refuse(fmt::format("expected from 1 to {} tokens, found {}", kMostTokens, count));
  const std::int32_t separator = version == 1 ? kGpt2EndOfText : end_of_text;
  if (version == 2 && (separator < 0 || separator >= count))
    refuse(fmt::format("the token that ends a text is {}; expected one of its {} tokens", separator, count));
  std::size_t at = kTokenizerHeader;
  for (std::int32_t token = 0; token < count; ++token) {
    const std::size_t length = at < content.size() ? static_cast<std::uint8_t>(content[at]) : 0;
    if (at + 1 + length > content.size())
      refuse(fmt::format("its {} bytes end within token {} of {}; the file is cut off", content.size(), token,
                         count));
    bytes_.push_back(static_cast<std::uint8_t>(token == separator ? 0 : length));
    at += 1 + length;
  }
  if (at != content.size())
    refuse(fmt::format("expected {} bytes for {} tokens, found {}; the file is longer than it says", at,
                       count, content.size()));
}

}  // namespace tenon::text
