// Reference sums and embedding rows: the orders of reduce.hpp, written out.
#pragma once

#include <cmath>
#include <tenon/kernels/reduce.hpp>
#include <tenon/kernels/reference/scalar.hpp>

namespace tenon::kernels::reference {

template <class S, class Fn>
void blocks_of(const S* x, std::int64_t n, double* sums, Fn fn) {
  for (std::int64_t block = 0; block < reduce_blocks(n); ++block) {
    double lanes[kLanes] = {};
    for (std::int64_t i = block * kReduceBlock; i < n && i < (block + 1) * kReduceBlock; ++i)
      lanes[i % kLanes] += fn(static_cast<double>(get(x[i])));
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    sums[block] = lanes[0];
  }
}

template <class S>
void block_sums(const S* x, std::int64_t n, double* sums) {
  blocks_of(x, n, sums, [](double v) { return v; });
}
template <class S>
void block_sums_of_squares(const S* x, std::int64_t n, double* sums) {
  blocks_of(x, n, sums, [](double v) { return v * v; });
}

template <class S>
std::int64_t first_non_finite(const S* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    if (!std::isfinite(get(x[i]))) return i;
  return -1;
}

template <class S>
void column_sums(const S* x, Arith<S>* y, std::int64_t rows, std::int64_t cols, std::int64_t col_begin,
                 std::int64_t col_end, bool accumulate) {
  constexpr std::int64_t kGroup = 32;
  for (std::int64_t j = col_begin; j < col_end; ++j) {
    Arith<S> total = 0;
    for (std::int64_t first = 0; first < rows; first += kGroup) {
      Arith<S> group = 0;
      for (std::int64_t r = first; r < rows && r < first + kGroup; ++r) group += get(x[r * cols + j]);
      total += group;
    }
    y[j] = accumulate ? y[j] + total : total;
  }
}

template <class S>
void gather(const S* table, const std::int32_t* indices, S* y, std::int64_t n, std::int64_t cols) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < cols; ++j) y[i * cols + j] = table[indices[i] * cols + j];
}

template <class S>
void scatter_add(const S* dy, const std::int32_t* indices, Arith<S>* dtable, std::int64_t n,
                 std::int64_t cols, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; indices[i] >= row_begin && indices[i] < row_end && j < cols; ++j)
      dtable[indices[i] * cols + j] += get(dy[i * cols + j]);
}

}  // namespace tenon::kernels::reference
