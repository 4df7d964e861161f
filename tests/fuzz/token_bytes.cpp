// Target: files of tokenizers. An accepted file is a header and its tokens, and nothing else.
#include "token_bytes.hpp"
#include "input.hpp"

#include <tenon/error.hpp>

#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const std::string_view content = fuzz::text_of(data, size);
  try {
    const text::TokenBytes bytes("tokenizer.bin", content);
    std::int64_t sum = 0, empty = 0;
    for (std::int64_t token = 0; token < bytes.size(); ++token) {
      sum += bytes.of(token);
      empty += bytes.of(token) == 0 ? 1 : 0;
    }
    // All but the end of a text, of at most 255 bytes.
    const auto held = static_cast<std::int64_t>(content.size()) - 1024 - bytes.size();
    fuzz::require(sum <= held && held - sum <= 255, "lengths that are not those of the file");
    fuzz::require(sum == held || empty > 0, "bytes of no token");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
