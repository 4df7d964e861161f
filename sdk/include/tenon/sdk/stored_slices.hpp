// A stored tensor in pieces: for transforms and other readers of models that may be larger than the memory.
// Header only.
#pragma once

#include <tenon/stored_model.hpp>
#include <tenon/transform.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

TENON_ABI_BEGIN

/// Elements of a slice that keeps its memory at a few MiB.
inline constexpr std::int64_t kSliceElements = std::int64_t{1} << 20;

/// Calls use(offset, extents) for boxes of at most `most` elements that together are a tensor of this shape.
/// Each is contiguous in the tensor, and they come in the order of its memory. A tensor without elements has
/// none, a scalar has one.
template <typename Use>
void for_each_slice(const Shape& shape, std::int64_t most, Use&& use) {
  if (shape.elements() == 0) return;
  // A slice has one index of each dimension before `cut`, some of `cut`, and all of those after it.
  int cut = std::max(0, shape.rank() - 1);
  std::int64_t inner = 1;
  while (cut > 0 && shape[cut] <= most / inner) inner *= shape[cut--];
  Shape offset = shape, extents = shape;
  for (int dim = 0; dim < shape.rank(); ++dim) offset[dim] = 0;
  for (int dim = 0; dim < cut; ++dim) extents[dim] = 1;
  const std::int64_t along = shape.rank() == 0 ? 1 : shape[cut];
  const std::int64_t step = std::max<std::int64_t>(1, most / inner);
  for (;;) {
    for (std::int64_t begin = 0; begin < along; begin += step) {
      if (shape.rank() > 0) {
        offset[cut] = begin;
        extents[cut] = std::min(step, along - begin);
      }
      use(static_cast<const Shape&>(offset), static_cast<const Shape&>(extents));
    }
    int dim = cut - 1;
    while (dim >= 0 && ++offset[dim] == shape[dim]) offset[dim--] = 0;
    if (dim < 0) return;
  }
}

/// Writes a tensor of a source as it is, in slices. `tensor` is the next one of the result; `from` is its
/// name in the source.
inline void copy_stored(StoredModel& source, std::string_view from, const StoredTensor& tensor,
                        TensorWriter& out) {
  std::vector<std::byte> memory;
  for_each_slice(tensor.shape, kSliceElements, [&](const Shape& offset, const Shape& extents) {
    memory.resize(static_cast<std::size_t>(dtype_bytes(tensor.dtype, extents.elements())));
    const TensorView piece{memory.data(), extents, tensor.dtype, MemorySpace::kHost};
    source.read(from, offset, piece);
    out.write(piece);
  });
}

TENON_ABI_END
