// Kernel bodies of products of elements: as maps of elementwise.hpp, and rotations of pairs.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/elementwise.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

/// a * b, added to `old` unless that is null.
template <class S>
struct Product {
  const S *a, *b, *old;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const {
    const Arith<S> value = get(a[i]) * get(b[i]);
    return old != nullptr ? get(old[i]) + value : value;
  }
};

/// x[r, :] * factors[r]
template <class S>
struct RowProduct {
  const S* x;
  const Arith<S>* factors;
  std::int64_t columns;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const {
    return get(x[i]) * factors[divided(i, columns).quotient];
  }
};

/// The pairs (j, j + half) of `rows` rows of `heads` heads, turned by the angles of a line of the table; a
/// thread reads and writes both elements of a pair. `sign` is -1 for the inverse.
template <class S>
struct RotatePairs {
  const S* x;
  const Arith<S>* table;
  const std::int32_t* positions;  ///< null: row modulo lines
  S* y;
  std::int64_t rows, heads, half, lines;
  Arith<S> sign;
  bool accumulate;

  TENON_BOTH void operator()(const Block& block) const {
    const RotatePairs& t = *this;
    for_each_element(block, rows * heads * half, [&](std::int64_t pair) {
      const Divided place = divided(pair, t.half);
      const std::int64_t j = place.remainder, head = place.quotient, row = divided(head, t.heads).quotient;
      const std::int64_t line = t.positions != nullptr ? t.positions[row] : divided(row, t.lines).remainder;
      const std::int64_t first = head * 2 * t.half + j, second = first + t.half;
      const Arith<S> c = t.table[line * 2 * t.half + j], s = t.sign * t.table[(line * 2 + 1) * t.half + j];
      const Arith<S> a = get(t.x[first]), b = get(t.x[second]);
      const Arith<S> low = a * c - b * s, high = b * c + a * s;
      t.y[first] = put<S>(t.accumulate ? get(t.y[first]) + low : low);
      t.y[second] = put<S>(t.accumulate ? get(t.y[second]) + high : high);
    });
  }
};

}  // namespace tenon::kernels::cuda
