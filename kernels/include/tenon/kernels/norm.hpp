// Normalization over the last dimension, and over channels (batch norm, below). Layer norm: y = (x - mean)
// rstd gain + bias, rstd = 1 / sqrt(var + eps). RMS norm: y = x rstd gain, rstd = 1 / sqrt(mean(x^2) + eps),
// with the same arguments less mean and bias. Rows are independent in forward and backward_input;
// backward_params gives each caller a range of columns and walks all rows in order, so sums over rows do not
// depend on the number of threads. Nothing here starts a thread.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// x and y are [rows, cols], contiguous; y may be x. gain and bias are [cols] or null (then 1 and 0).
/// mean and rstd are [rows], written for backward; either may be null when no backward follows.
template <class S>
struct LayerNormForwardArgs {
  std::int64_t rows = 0, cols = 0;
  Arith<S> eps = 0;
  const S* x = nullptr;
  const Arith<S>* gain = nullptr;
  const Arith<S>* bias = nullptr;
  S* y = nullptr;
  Arith<S>* mean = nullptr;
  Arith<S>* rstd = nullptr;
};

/// With g = dy gain and h = (x - mean) rstd: dx = rstd (g - mean(g) - h mean(g h)). dx may be dy.
/// dgain = sum over rows of dy h, dbias = sum over rows of dy; either may be null.
template <class S>
struct LayerNormBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  const S* x = nullptr;
  const S* dy = nullptr;
  const Arith<S>* gain = nullptr;
  const Arith<S>* mean = nullptr;
  const Arith<S>* rstd = nullptr;
  S* dx = nullptr;
  bool accumulate_dx = false;
  Arith<S>* dgain = nullptr;
  Arith<S>* dbias = nullptr;
  bool accumulate_params = false;
};

template <class S>
struct NormOps {
  void (*layer_norm_forward)(const LayerNormForwardArgs<S>&, std::int64_t row_begin, std::int64_t row_end);
  void (*layer_norm_backward_input)(const LayerNormBackwardArgs<S>&, std::int64_t row_begin,
                                    std::int64_t row_end);
  void (*layer_norm_backward_params)(const LayerNormBackwardArgs<S>&, std::int64_t col_begin,
                                     std::int64_t col_end);
  /// Ignores the mean, bias and dbias of the arguments.
  void (*rms_norm_forward)(const LayerNormForwardArgs<S>&, std::int64_t row_begin, std::int64_t row_end);
  /// With h = x rstd: dx = rstd (g - h mean(g h)).
  void (*rms_norm_backward_input)(const LayerNormBackwardArgs<S>&, std::int64_t row_begin,
                                  std::int64_t row_end);
  void (*rms_norm_backward_params)(const LayerNormBackwardArgs<S>&, std::int64_t col_begin,
                                   std::int64_t col_end);
};

// Batch normalization of x [batch, channels, places]: y = (x - mean) rstd gain + bias with the mean and the
// biased variance of a channel over batch and places. Channels are independent: callers may split them in any
// way. Sums over a sample's places are in Arith<S>, those over the samples in double, in order.

/// gain, bias, running_mean and running_variance may be null; mean and rstd are [channels].
template <class S>
struct BatchNormForwardArgs {
  std::int64_t batch = 0, channels = 0, places = 0;
  Arith<S> eps = 0;
  const S* x = nullptr;
  const Arith<S>* gain = nullptr;
  const Arith<S>* bias = nullptr;
  S* y = nullptr;
  Arith<S>* mean = nullptr;
  Arith<S>* rstd = nullptr;
  /// running += momentum (new - running), the new variance being the unbiased one.
  double momentum = 0;
  Arith<S>* running_mean = nullptr;
  Arith<S>* running_variance = nullptr;
};

/// With n = batch places, g = dy gain, h = (x - mean) rstd: dx = rstd (g - sum(g) / n - h sum(g h) / n).
/// dx may be dy; dx, dgain and dbias may be null.
template <class S>
struct BatchNormBackwardArgs {
  std::int64_t batch = 0, channels = 0, places = 0;
  const S* x = nullptr;
  const S* dy = nullptr;
  const Arith<S>* gain = nullptr;
  const Arith<S>* mean = nullptr;
  const Arith<S>* rstd = nullptr;
  S* dx = nullptr;
  bool accumulate_dx = false;
  Arith<S>* dgain = nullptr;
  Arith<S>* dbias = nullptr;
  bool accumulate_params = false;
};

template <class S>
struct BatchNormOps {
  void (*forward)(const BatchNormForwardArgs<S>&, std::int64_t channel_begin, std::int64_t channel_end);
  /// y alone, from running_mean and running_variance, which are read.
  void (*fixed)(const BatchNormForwardArgs<S>&, std::int64_t channel_begin, std::int64_t channel_end);
  void (*backward)(const BatchNormBackwardArgs<S>&, std::int64_t channel_begin, std::int64_t channel_end);
};

}  // namespace tenon::kernels
