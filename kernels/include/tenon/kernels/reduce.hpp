// Sums in an order that depends on the data alone, the search for non-finite values, and rows of tables by
// index. A vector is split into blocks of kReduceBlock elements counted from its start; each block becomes
// one double (16 lanes, element i to lane i % 16, then the lanes by halves); pairwise_sum adds the blocks by
// halves. Threads share blocks, and the result is the same for any sharing and in every kernel set.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

inline constexpr std::int64_t kReduceBlock = 4096;

constexpr std::int64_t reduce_blocks(std::int64_t n) {
  return (n + kReduceBlock - 1) / kReduceBlock;
}

/// Sum of values[0 .. n): halves [0, ceil(n / 2)) and the rest, each summed likewise. 0 for n = 0.
double pairwise_sum(const double* values, std::int64_t n);

template <class S>
struct ReduceOps {
  /// Write reduce_blocks(n) block sums of x[0 .. n); x starts at a block of the whole vector.
  void (*block_sums)(const S* x, std::int64_t n, double* sums);
  /// The same for squares, each taken exactly (float products fit a double).
  void (*block_sums_of_squares)(const S* x, std::int64_t n, double* sums);
  /// Position of the first NaN or infinity, or -1.
  std::int64_t (*first_non_finite)(const S* x, std::int64_t n);
  /// y[j] = (accumulate ? y[j] : 0) + sum over rows of x[i, j], for columns [col_begin, col_end) of x [rows,
  /// cols]. Rows are added in order, in groups of 32 that are added in order.
  void (*column_sums)(const S* x, Arith<S>* y, std::int64_t rows, std::int64_t cols, std::int64_t col_begin,
                      std::int64_t col_end, bool accumulate);
};

// Gather of table rows by index, and its gradient. Backward assigns each caller a range of table rows; the
// caller walks all indices in order and adds those in its range, so the order of every sum is the order of
// the indices, whatever the number of threads, without atomics.

/// Position of the first index outside [lowest, bound), or -1; lowest is 0 for tokens and -1 for targets. The
/// other functions here and the losses trust their indices.
std::int64_t first_bad_index(const std::int32_t* indices, std::int64_t n, std::int32_t lowest,
                             std::int64_t bound);

template <class S>
struct EmbeddingOps {
  /// y[i] = table[indices[i]]; table [*, cols], y [n, cols].
  void (*gather)(const S* table, const std::int32_t* indices, S* y, std::int64_t n, std::int64_t cols);
  /// dtable[indices[i]] += dy[i] for i = 0 .. n - 1 with row_begin <= indices[i] < row_end.
  void (*scatter_add)(const S* dy, const std::int32_t* indices, Arith<S>* dtable, std::int64_t n,
                      std::int64_t cols, std::int64_t row_begin, std::int64_t row_end);
};

}  // namespace tenon::kernels
