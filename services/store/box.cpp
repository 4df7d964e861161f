// Strided copy of the elements that boxes share.
#include "store/box.hpp"

#include <tenon/error.hpp>

#include <algorithm>

namespace tenon {

namespace {

// Bytes [first, first + size) of `count` elements that begin at element `at` of a run of `total`.
struct ByteRange {
  std::int64_t first = 0;
  std::int64_t size = 0;
};

ByteRange byte_range(DType dtype, std::int64_t at, std::int64_t count, std::int64_t total) {
  const int bits = dtype_bits(dtype);
  if (bits % 8 == 0) return {at * (bits / 8), count * (bits / 8)};
  // Eight elements always fill whole bytes, so the remainder decides; only the end of the tensor may be
  // ragged.
  const bool begins = (at % 8) * bits % 8 == 0;
  const bool ends = ((at + count) % 8) * bits % 8 == 0 || at + count == total;
  if (!begins || !ends) fail_run("a slice of packed elements does not begin and end on bytes");
  return {dtype_bytes(dtype, at), dtype_bytes(dtype, at + count) - dtype_bytes(dtype, at)};
}

std::int64_t element_index(const Box& box, const Shape& global) noexcept {
  std::int64_t index = 0;
  for (int d = 0; d < box.extents.rank(); ++d) {
    index = index * box.extents[d] + (global[d] - box.offset[d]);
  }
  return index;
}

}  // namespace

std::int64_t shared_elements(const Box& a, const Box& b) noexcept {
  return intersection(a, b).elements();
}

bool box_fits(const Box& box, const Shape& tensor) noexcept {
  if (box.offset.rank() != tensor.rank() || box.extents.rank() != tensor.rank()) return false;
  for (int d = 0; d < tensor.rank(); ++d) {
    if (box.offset[d] < 0 || box.extents[d] < 0 || box.offset[d] > tensor[d]) return false;
    if (box.extents[d] > tensor[d] - box.offset[d]) return false;
  }
  return true;
}

std::int64_t copy_shared(DType dtype, const Box& part, const ByteSource& source, const Box& wanted,
                         std::span<std::byte> out) {
  const Box shared = intersection(part, wanted);
  if (shared.elements() == 0) return 0;

  // Trailing dimensions that both boxes hold whole, and the one before them, form a contiguous run in both.
  int outer = part.extents.rank();
  std::int64_t run = 1;
  while (outer > 0) {
    --outer;
    const std::int64_t extent = shared.extents[outer];
    run *= extent;
    if (extent != part.extents[outer] || extent != wanted.extents[outer]) break;
  }

  const std::int64_t part_elements = part.extents.elements();
  const std::int64_t wanted_elements = wanted.extents.elements();
  Shape at = shared.offset;
  std::int64_t copied = 0;
  for (;;) {
    const ByteRange from = byte_range(dtype, element_index(part, at), run, part_elements);
    const ByteRange to = byte_range(dtype, element_index(wanted, at), run, wanted_elements);
    if (from.size != to.size) fail_run("a slice of packed elements does not begin and end on bytes");
    source(from.first, out.subspan(to.first, to.size));
    copied += run;
    int d = outer - 1;
    for (; d >= 0; --d) {
      if (++at[d] < shared.end(d)) break;
      at[d] = shared.offset[d];
    }
    if (d < 0) return copied;
  }
}

}  // namespace tenon
