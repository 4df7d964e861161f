// Target: the file of digests of the user's cache folder. The input is the whole file, and the lines of one
// whose sum is right. What is accepted is written and read again as it was.
#include "base/digest_cache.hpp"
#include "input.hpp"

#include <tenon/files.hpp>

#include <span>
#include <string>

namespace {

using namespace tenon;

void read_again(std::string_view text) {
  const auto digests = base::parse_digests(text);
  if (!digests) return;
  fuzz::require(digests->size() <= base::DigestCache::kMost, "more than the most");
  fuzz::require(base::parse_digests(base::digest_text(*digests)) == digests, "written and read, another");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  read_again(text);
  const std::string sum = xxh3_128_of(std::as_bytes(std::span(text)));
  read_again("tenon-digests 1 " + sum + "\n" + std::string(text));
  return 0;
}
