// Batch normalization (contract: norm.hpp): 16 lane sums over a sample's places, the lanes by halves,
// the samples in double. The variance is taken about the mean in a second pass.
#pragma once

#include <tenon/kernels/norm.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

/// Calls fn(i, n) for groups of n elements from i on, over all elements of a channel.
template <class Args, class Fn>
TENON_INLINE void for_channel(const Args& args, std::int64_t channel, Fn fn) {
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const std::int64_t first = (b * args.channels + channel) * args.places;
    for_lanes(first, first + args.places, fn);
  }
}

/// Sum over a channel of term(i, n), whose lanes after n are zero.
template <class Args, class Term>
TENON_INLINE double channel_sum(const Args& args, std::int64_t channel, Term term) {
  double total = 0;
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const std::int64_t first = (b * args.channels + channel) * args.places;
    F lanes = splat(0.0f);
    for_lanes(first, first + args.places,
              [&](std::int64_t i, std::int64_t n) TENON_BODY { lanes = lanes + term(i, n); });
    total += static_cast<double>(sum_lanes(lanes));
  }
  return total;
}

/// The same of two terms in one pass over memory: terms(i, n, first, second) adds to both.
struct TwoSums {
  double first = 0, second = 0;
};
template <class Args, class Terms>
TENON_INLINE TwoSums channel_sums(const Args& args, std::int64_t channel, Terms terms) {
  TwoSums total;
  for (std::int64_t b = 0; b < args.batch; ++b) {
    const std::int64_t from = (b * args.channels + channel) * args.places;
    F first = splat(0.0f), second = splat(0.0f);
    for_lanes(from, from + args.places,
              [&](std::int64_t i, std::int64_t n) TENON_BODY { terms(i, n, first, second); });
    total.first += static_cast<double>(sum_lanes(first));
    total.second += static_cast<double>(sum_lanes(second));
  }
  return total;
}

template <class S>
TENON_INLINE void normalise_channel(const BatchNormForwardArgs<S>& args, std::int64_t c, float mean,
                                    float rstd) {
  const F gain = splat(args.gain != nullptr ? args.gain[c] : 1.0f);
  const F bias = splat(args.bias != nullptr ? args.bias[c] : 0.0f);
  for_channel(args, c, [&](std::int64_t i, std::int64_t n) TENON_BODY {
    store_group(args.y + i, (load_group(args.x + i, n) - splat(mean)) * splat(rstd) * gain + bias, n);
  });
}

TENON_INLINE void blend(float* running, double momentum, double value) {
  *running = static_cast<float>((1 - momentum) * static_cast<double>(*running) + momentum * value);
}

template <class S>
void batch_norm_forward(const BatchNormForwardArgs<S>& args, std::int64_t channel_begin,
                        std::int64_t channel_end) {
  const double count = static_cast<double>(args.batch * args.places);
  for (std::int64_t c = channel_begin; c < channel_end; ++c) {
    const double exact =
        channel_sum(args, c,
                    [&](std::int64_t i, std::int64_t n) TENON_BODY { return load_group(args.x + i, n); }) /
        count;
    const float mean = static_cast<float>(exact);
    const double squares = channel_sum(args, c, [&](std::int64_t i, std::int64_t n) TENON_BODY {
      F d = load_group(args.x + i, n) - splat(mean);
      if (n < kLanes) d = select(first_lanes(n), d, splat(0.0f));
      return d * d;
    });
    const float rstd =
        static_cast<float>(1 / __builtin_sqrt(squares / count + static_cast<double>(args.eps)));
    args.mean[c] = mean;
    args.rstd[c] = rstd;
    if (args.running_mean != nullptr) blend(args.running_mean + c, args.momentum, exact);
    if (args.running_variance != nullptr)
      blend(args.running_variance + c, args.momentum, squares / (count > 1 ? count - 1 : 1));
    normalise_channel(args, c, mean, rstd);
  }
}

template <class S>
void batch_norm_fixed(const BatchNormForwardArgs<S>& args, std::int64_t channel_begin,
                      std::int64_t channel_end) {
  for (std::int64_t c = channel_begin; c < channel_end; ++c)
    normalise_channel(args, c, args.running_mean[c],
                      1.0f / __builtin_sqrtf(args.running_variance[c] + args.eps));
}

TENON_INLINE void put_sum(float* out, std::int64_t c, bool accumulate, double value) {
  if (out != nullptr) out[c] = (accumulate ? out[c] : 0.0f) + static_cast<float>(value);
}

template <class S>
void batch_norm_backward(const BatchNormBackwardArgs<S>& args, std::int64_t channel_begin,
                         std::int64_t channel_end) {
  const double count = static_cast<double>(args.batch * args.places);
  for (std::int64_t c = channel_begin; c < channel_end; ++c) {
    const F mean = splat(args.mean[c]), rstd = splat(args.rstd[c]);
    const auto above = [&](std::int64_t i, std::int64_t n) TENON_BODY { return load_group(args.dy + i, n); };
    const auto h = [&](std::int64_t i, std::int64_t n)
                       TENON_BODY { return (load_group(args.x + i, n) - mean) * rstd; };
    const auto [sum, dot] =
        channel_sums(args, c, [&](std::int64_t i, std::int64_t n, F& slopes, F& products) TENON_BODY {
          const F slope = above(i, n);
          slopes = slopes + slope;
          products = products + slope * h(i, n);
        });
    put_sum(args.dgain, c, args.accumulate_params, dot);
    put_sum(args.dbias, c, args.accumulate_params, sum);
    if (args.dx == nullptr) continue;
    const F factor = rstd * splat(args.gain != nullptr ? args.gain[c] : 1.0f);
    const F mean_dy = splat(static_cast<float>(sum / count)),
            mean_dot = splat(static_cast<float>(dot / count));
    for_channel(args, c, [&](std::int64_t i, std::int64_t n) TENON_BODY {
      F d = factor * (above(i, n) - mean_dy - h(i, n) * mean_dot);
      if (args.accumulate_dx) d = load_group(args.dx + i, n) + d;
      store_group(args.dx + i, d, n);
    });
  }
}

}  // namespace
}  // namespace tenon::kernels
