// Target: records of the control plane, and the texts of an exchange within them. What is decoded encodes to
// the same bytes.
#include "input.hpp"

#include "control/control_wire.hpp"

#include <tenon/error.hpp>

#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    const std::string_view text = fuzz::text_of(data, size);
    if (size < kControlRecordBytes) {
      fuzz::require(join_texts(split_texts(text)) == text, "texts change on the way");
      return 0;
    }
    ControlHeader header;
    std::copy_n(data, header.size(), header.begin());
    std::uint32_t announced = 0;
    ControlRecord record = decode_header(header, announced);
    fuzz::require(announced <= kControlTextBytes, "a longer text than is accepted");
    record.text.assign(announced, 'x');
    fuzz::require(encode_header(record) == header, "a header changes on the way");
    const std::string_view rest = text.substr(header.size());
    fuzz::require(join_texts(split_texts(rest)) == rest, "texts change on the way");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
  return 0;
}
