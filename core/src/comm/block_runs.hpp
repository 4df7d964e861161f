// The elements of a block in two tensors at once, as runs that are contiguous in both.
#pragma once

#include <tenon/tensor.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace tenon::comm {

/// A box within a tensor of this shape.
struct Window {
  Shape shape;
  Box box;
};

/// All of a tensor of this shape.
inline Window whole_of(const Shape& shape) {
  Window window{shape, {shape, shape}};
  for (int dim = 0; dim < shape.rank(); ++dim) window.box.offset[dim] = 0;
  return window;
}

/// fn(first element in a's tensor, in b's, count) for all runs, in row-major order. The boxes have equal
/// extents.
template <typename Fn>
void for_each_run(const Window& a, const Window& b, Fn&& fn) {
  const Shape& extents = a.box.extents;
  if (extents.elements() == 0) return;
  // Trailing dimensions that the box fills in both tensors, and the one before them, are one run.
  int outer = extents.rank();
  std::int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= extents[outer];
    if (extents[outer] != a.shape[outer] || extents[outer] != b.shape[outer]) break;
  }
  std::array<std::int64_t, kMaxRank> at{};
  const auto element = [&](const Window& window) {
    std::int64_t index = 0;
    for (int dim = 0; dim < extents.rank(); ++dim)
      index = index * window.shape[dim] + window.box.offset[dim] + at[dim];
    return index;
  };
  for (;;) {
    fn(element(a), element(b), run);
    int dim = outer - 1;
    for (; dim >= 0; --dim) {
      if (++at[dim] < extents[dim]) break;
      at[dim] = 0;
    }
    if (dim < 0) return;
  }
}

/// First element of the box if its elements are contiguous, else -1.
inline std::int64_t contiguous_at(const Window& window) {
  std::int64_t first = -1;
  bool once = true;
  for_each_run(window, whole_of(window.box.extents), [&](std::int64_t at, std::int64_t, std::int64_t) {
    once = first < 0;
    if (once) first = at;
  });
  return once ? first : -1;
}

inline std::string all_under_way(std::size_t flights) {
  return "a move between layouts was started while all its flights are under way: " +
         std::to_string(flights) + " as planned; plan more (flights), or finish one first";
}

}  // namespace tenon::comm
