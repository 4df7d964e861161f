// Target: IDX files, plain or gzip. The first byte of the input chooses images or labels.
#include "idx.hpp"
#include "input.hpp"

#include <tenon/error.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  if (size == 0) return 0;
  const int dimensions = data[0] % 2 == 0 ? 3 : 1;
  const fuzz::MemoryFile input(fuzz::text_of(data + 1, size - 1));
  try {
    const mnist::IdxArray array =
        mnist::read_idx(input.path(), dimensions, dimensions == 3 ? "images" : "labels");
    std::int64_t elements = 1;
    for (const std::int64_t extent : array.extents) elements *= extent;
    fuzz::require(static_cast<int>(array.extents.size()) == dimensions, "another number of extents");
    fuzz::require(elements > 0 && elements == static_cast<std::int64_t>(array.bytes.size()), "another size");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kConfig, error.what());
  }
  return 0;
}
