// Target: indices of documents. The first byte of the input says whether the CRC is mended, since no mutation
// hits it. Documents of an accepted index begin at 0, ascend, and lie within its tokens.
#include "input.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/token_files.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  if (size == 0) return 0;
  std::string content(fuzz::text_of(data + 1, size - 1));
  if (data[0] % 2 == 1 && content.size() >= 4) {
    const std::uint32_t crc = crc32c(std::as_bytes(std::span(content)).first(content.size() - 4));
    content.replace(content.size() - 4, 4, reinterpret_cast<const char*>(&crc), 4);
  }
  try {
    const DocumentIndex index = parse_document_index(std::as_bytes(std::span(content)), "index");
    fuzz::require(index.tokenizer.size() == 64 && index.vocabulary > 0, "no tokenizer");
    fuzz::require(!index.first.empty() && index.first[0] == 0, "no first document");
    for (std::size_t i = 1; i < index.first.size(); ++i)
      fuzz::require(index.first[i - 1] < index.first[i], "documents that do not ascend");
    fuzz::require(index.first.back() < index.tokens, "a document beyond the tokens");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
