// Kernel bodies of gather and scatter of rows. Scatter runs over ids that were sorted stably (sort.hpp): the
// thread at the first of equal ids adds all of them, in the order of their positions. Nothing is atomic.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

/// table[ids[r], c] of element i = (r, c), as a map of elementwise.hpp, added to `old` unless that is null.
template <class S>
struct Gathered {
  const Arith<S>* table;
  const std::int32_t* ids;
  std::int64_t width;
  const S* old;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const {
    const Divided place = divided(i, width);
    const Arith<S> value = table[ids[place.quotient] * width + place.remainder];
    return old != nullptr ? get(old[i]) + value : value;
  }
};

/// gradient[id] += dy[position] for n sorted ids. A thread per sorted id and column: O(n width) work; the
/// longest chain of additions is that of the most frequent id.
template <class S>
struct ScatterSorted {
  std::int64_t n, width;
  const std::int32_t *ids, *positions;
  const S* dy;
  Arith<S>* gradient;

  TENON_BOTH void operator()(const Block& block) const {
    const ScatterSorted& a = *this;
    for_each_element(block, n * width, [&](std::int64_t e) {
      const Divided place = divided(e, a.width);
      std::int64_t at = place.quotient;
      const std::int32_t id = a.ids[at];
      if (at > 0 && a.ids[at - 1] == id) return;
      Arith<S>& sum = a.gradient[id * a.width + place.remainder];
      Arith<S> own = sum;
      for (; at < a.n && a.ids[at] == id; ++at) own += get(a.dy[a.positions[at] * a.width + place.remainder]);
      sum = own;
    });
  }
};

}  // namespace tenon::kernels::cuda
