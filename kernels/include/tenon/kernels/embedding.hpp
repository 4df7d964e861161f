// Gather of table rows by index, and its gradient. Backward assigns each caller a range of table rows; the
// caller walks all indices in order and adds those in its range, so the order of every sum is the order of
// the indices, whatever the number of threads, without atomics.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

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
