// Target: the record of a loss beside a checkpoint. The input is a record without its last line, which is
// added with the right CRC: otherwise no input would pass it. An accepted record has one spelling.
#include "store/canary.hpp"
#include "input.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const std::string body(fuzz::text_of(data, size));
  const std::string text = fmt::format("{}crc32c {:08x}\n", body, crc32c(std::as_bytes(std::span(body))));
  for (const std::string& input : {body, text}) {
    try {
      const checkpoint::CanaryRecord record = checkpoint::parse_canary(input, "input");
      fuzz::require(checkpoint::canary_text(record) == input, "another spelling was accepted");
    } catch (const Error& error) {
      fuzz::require(error.kind() == ErrorKind::kRun, error.what());
    }
  }
  const std::optional<int> rank = checkpoint::canary_rank(body);
  fuzz::require(!rank || checkpoint::canary_name(*rank) == body, "a name of another rank");
  return 0;
}
