// Batch normalization of x [batch, channels, places]: y = (x - mean) rstd gain + bias with the mean and the
// biased variance of a channel over batch and places. Channels are independent: callers may split them in any
// way. Sums over a sample's places are in Arith<S>, those over the samples in double, in order.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

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
