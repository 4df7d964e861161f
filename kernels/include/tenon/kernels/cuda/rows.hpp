// Work by rows: a block processes one row at a time, its threads stride over the columns, and their results
// are joined in a tree in shared memory. The number of threads, and so the order of every sum, depends on the
// number of columns alone.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>

namespace tenon::kernels::cuda {

/// A power of two: about eight columns per thread, but at least a warp, and at most what leaves every thread
/// 128 registers.
constexpr int row_threads(std::int64_t columns) {
  int threads = 32;
  while (threads < 512 && std::int64_t{threads} * 8 < columns) threads *= 2;
  return threads;
}

/// `shared` bytes per thread. Rows beyond what keeps a device busy are taken in turns.
constexpr Grid grid_for_rows(std::int64_t rows, std::int64_t columns, std::size_t shared) {
  constexpr std::int64_t kBusy = 132 * 32;
  const int threads = row_threads(columns);
  return {rows < 1 ? 1 : rows > kBusy ? kBusy : rows, threads, static_cast<std::size_t>(threads) * shared};
}

/// Calls f(row) for the rows of this block; f consists of phases.
template <class F>
TENON_BOTH void for_rows(const Block& block, std::int64_t rows, F f) {
  for (std::int64_t row = block.index(); row < rows; row += block.blocks()) f(row);
}

/// The sum of term(j) for j in [0, n). It is read from values[0], which therefore may only be written again
/// after a phase of something else.
template <class T, class Term>
TENON_BOTH T sum_over(const Block& block, T* values, std::int64_t n, Term term) {
  block.each([&](int thread) {
    T own{};
    for (std::int64_t j = thread; j < n; j += block.threads()) own = own + term(j);
    values[thread] = own;
  });
  reduce_block(block, values, Add{});
  return values[0];
}

/// K sums that are computed together.
template <class A, int K>
struct Sums {
  A of[K];
  TENON_BOTH Sums operator+(const Sums& other) const {
    Sums result{};
    for (int k = 0; k < K; ++k) result.of[k] = of[k] + other.of[k];
    return result;
  }
};

}  // namespace tenon::kernels::cuda
