// Softmax over the last dimension, and softmax cross-entropy over a vocabulary as a whole or in chunks of
// columns. A row whose inputs hold a NaN or +infinity becomes NaN. Rows are independent: callers may split
// them in any way.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// Logits of columns [col_begin, col_begin + cols) of a vocabulary, row i at logits + i ld.
/// A target of -1 is ignored: loss 0 and no gradient. Targets are indices into the whole vocabulary.
template <class S>
struct CrossEntropyArgs {
  std::int64_t rows = 0, cols = 0, ld = 0;
  std::int64_t col_begin = 0;
  const S* logits = nullptr;
  const std::int32_t* targets = nullptr;  ///< [rows]
  // Running state of a chunked forward, [rows] each; `begin` sets it, `chunk` folds columns in, `finish`
  // reads it.
  Arith<S>* running_max = nullptr;
  Arith<S>* running_sum = nullptr;
  Arith<S>* target_logit = nullptr;
  Arith<S>* loss = nullptr;  ///< [rows]: lse - logit of the target, written by finish
  Arith<S>* lse = nullptr;   ///< [rows]: log of the sum of exp(logit), written by finish, read by backward
  // Backward: dlogits = (softmax - floor - peak onehot) scale, row i at dlogits + i ld; may be logits.
  S* dlogits = nullptr;
  Arith<S> scale = 1;
  Arith<S> peak = 1, floor = 0;  ///< with label smoothing s over v columns: 1 - s and s / v
};

template <class S>
struct SoftmaxOps {
  /// y = softmax(scale x) on [rows, cols]; y may be x.
  void (*softmax_forward)(Arith<S> scale, const S* x, S* y, std::int64_t rows, std::int64_t cols);
  /// dx = scale y (dy - sum(dy y)); dx may be dy.
  void (*softmax_backward)(Arith<S> scale, const S* y, const S* dy, S* dx, std::int64_t rows,
                           std::int64_t cols);

  void (*cross_entropy_begin)(const CrossEntropyArgs<S>&, std::int64_t row_begin, std::int64_t row_end);
  void (*cross_entropy_chunk)(const CrossEntropyArgs<S>&, std::int64_t row_begin, std::int64_t row_end);
  void (*cross_entropy_finish)(const CrossEntropyArgs<S>&, std::int64_t row_begin, std::int64_t row_end);
  void (*cross_entropy_backward)(const CrossEntropyArgs<S>&, std::int64_t row_begin, std::int64_t row_end);
};

}  // namespace tenon::kernels
