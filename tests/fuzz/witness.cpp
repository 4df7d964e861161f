// Target: witness.rank<r>.txt, as `tenon replay` reads it. An accepted file is consistent, and a run goes on
// from any part of it.
#include "input.hpp"
#include "witness/witness_file.hpp"

#include <tenon/error.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const std::string_view text = fuzz::text_of(data, size);
  const train::WitnessHead head = train::witness_head(text, "input", 1 << 20);
  fuzz::require(head.bytes <= size, "more than there is");
  if (head.bytes > 0)
    fuzz::require(train::parse_witness(text.substr(0, head.bytes), "input").names == head.names,
                  "other names");
  try {
    const train::WitnessRecord record = train::parse_witness(text, "input");
    std::int64_t last = -1;
    for (const train::WitnessSlot& slot : record.slots) {
      fuzz::require(slot.slot > last && record.find(slot.slot) == &slot, "slots do not ascend");
      last = slot.slot;
      for (const train::WitnessEntry& entry : slot.entries)
        fuzz::require(entry.name < record.names.size() && entry.micro >= 0, "no such tensor");
    }
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
  return 0;
}
