// Target: input from a connection between processes. An accepted header fits its buffer and is written back
// to the same bytes; so is a member's description of an operation.
#include "input.hpp"

#include "operation.hpp"

#include <tenon/ring/transport.hpp>

#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const auto bytes = std::as_bytes(std::span(data, size));
  FrameHeader header;
  if (size >= kFrameHeaderBytes) {
    FrameHeaderBytes head{};
    std::copy_n(bytes.begin(), head.size(), head.begin());
    if (read_frame_header(head, header).empty()) {
      fuzz::require(header.bytes <= kFrameDataBytes, "a payload beyond every buffer");
      fuzz::require(write_frame_header(header) == head, "a header that is not what it was read from");
    }
  }
  ring::Signature signature;
  if (!ring::read_signature(bytes, signature)) return 0;
  fuzz::require(signature.shape.elements() >= 0, "a negative number of elements");
  fuzz::require(!ring::signature_text(signature).empty(), "a signature without words");
  const ring::SignatureBytes written = ring::write_signature(signature);
  ring::Signature again;
  fuzz::require(ring::read_signature(written, again) && again == signature, "another signature when written");
  std::vector<std::int64_t> counts;
  ring::read_counts(bytes.subspan(ring::kSignatureBytes), counts);
  return 0;
}
