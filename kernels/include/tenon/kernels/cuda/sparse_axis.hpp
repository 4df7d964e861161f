// Kernel body of weighted sums of lines: a sparse matrix applied to the middle dimension of a tensor. A
// thread computes one element; its neighbours compute the following ones, so both tensors are read and
// written as contiguously as lines are long. A sum is one chain in the order of the table's terms.
#pragma once

#include <tenon/kernels/cuda/block.hpp>

namespace tenon::kernels::cuda {

/// y[o, r, i] = sum over e in [offsets[r], offsets[r + 1]) of weights[e] x[o, column_of[e], i];
/// x: [outer, columns, inner], y: [outer, rows, inner].
template <class T>
struct SumLines {
  const std::int32_t *offsets, *column_of;
  const T* weights;
  const T* x;
  T* y;
  std::int64_t outer, columns, rows, inner;

  TENON_BOTH std::int64_t elements() const { return outer * rows * inner; }
  TENON_BOTH void operator()(const Block& block) const {
    const SumLines& a = *this;
    for_each_element(block, elements(), [&](std::int64_t i) {
      const Divided line = divided(i, a.inner), place = divided(line.quotient, a.rows);
      const T* const from = a.x + place.quotient * a.columns * a.inner + line.remainder;
      const std::int32_t begin = a.offsets[place.remainder], end = a.offsets[place.remainder + 1];
      T sum = begin == end ? T{0} : a.weights[begin] * from[a.column_of[begin] * a.inner];
      for (std::int32_t e = begin + 1; e < end; ++e) sum += a.weights[e] * from[a.column_of[e] * a.inner];
      a.y[i] = sum;
    });
  }
};

}  // namespace tenon::kernels::cuda
