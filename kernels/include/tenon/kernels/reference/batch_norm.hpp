// Reference batch normalization: the formulas of norm.hpp, sums of a sample in order.
#pragma once

#include <cmath>
#include <tenon/kernels/norm.hpp>
#include <tenon/kernels/reference/scalar.hpp>

namespace tenon::kernels::reference {

/// Sum over a channel of term(element): per sample in A, over the samples in double.
template <class A, class Args, class Term>
double channel_sum(const Args& args, std::int64_t channel, Term term) {
  double total = 0;
  for (std::int64_t b = 0; b < args.batch; ++b) {
    A sum = 0;
    const std::int64_t first = (b * args.channels + channel) * args.places;
    for (std::int64_t p = 0; p < args.places; ++p) sum += term(first + p);
    total += static_cast<double>(sum);
  }
  return total;
}

template <class Args, class Fn>
void for_channel(const Args& args, std::int64_t channel, Fn fn) {
  for (std::int64_t b = 0; b < args.batch; ++b)
    for (std::int64_t p = 0; p < args.places; ++p) fn((b * args.channels + channel) * args.places + p);
}

template <class S>
void normalise_channel(const BatchNormForwardArgs<S>& args, std::int64_t c, Arith<S> mean, Arith<S> rstd) {
  using A = Arith<S>;
  const A gain = args.gain != nullptr ? args.gain[c] : A{1},
          bias = args.bias != nullptr ? args.bias[c] : A{0};
  for_channel(args, c,
              [&](std::int64_t i) { args.y[i] = put<S>((get(args.x[i]) - mean) * rstd * gain + bias); });
}

/// Blends one channel's running values; shared by every kernel set, as it is outside their loops.
template <class S>
void blend_running(const BatchNormForwardArgs<S>& args, std::int64_t c, double mean, double squares) {
  using A = Arith<S>;
  const double n = static_cast<double>(args.batch * args.places);
  const auto blend = [&](A* running, double value) {
    if (running == nullptr) return;
    const double old = static_cast<double>(running[c]);
    running[c] = static_cast<A>((1 - args.momentum) * old + args.momentum * value);
  };
  blend(args.running_mean, mean);
  blend(args.running_variance, squares / (n > 1 ? n - 1 : 1));
}

template <class S>
void batch_norm_forward(const BatchNormForwardArgs<S>& args, std::int64_t channel_begin,
                        std::int64_t channel_end) {
  using A = Arith<S>;
  const double n = static_cast<double>(args.batch * args.places);
  for (std::int64_t c = channel_begin; c < channel_end; ++c) {
    const double exact = channel_sum<A>(args, c, [&](std::int64_t i) { return get(args.x[i]); }) / n;
    const A mean = static_cast<A>(exact);
    const double squares = channel_sum<A>(args, c, [&](std::int64_t i) {
      const A d = get(args.x[i]) - mean;
      return d * d;
    });
    const A rstd = static_cast<A>(1 / std::sqrt(squares / n + static_cast<double>(args.eps)));
    args.mean[c] = mean;
    args.rstd[c] = rstd;
    blend_running(args, c, exact, squares);
    normalise_channel(args, c, mean, rstd);
  }
}

template <class S>
void batch_norm_fixed(const BatchNormForwardArgs<S>& args, std::int64_t channel_begin,
                      std::int64_t channel_end) {
  for (std::int64_t c = channel_begin; c < channel_end; ++c)
    normalise_channel(args, c, args.running_mean[c], 1 / std::sqrt(args.running_variance[c] + args.eps));
}

template <class S>
void batch_norm_backward(const BatchNormBackwardArgs<S>& args, std::int64_t channel_begin,
                         std::int64_t channel_end) {
  using A = Arith<S>;
  const double n = static_cast<double>(args.batch * args.places);
  for (std::int64_t c = channel_begin; c < channel_end; ++c) {
    const A mean = args.mean[c], rstd = args.rstd[c], gain = args.gain != nullptr ? args.gain[c] : A{1};
    const auto h = [&](std::int64_t i) { return (get(args.x[i]) - mean) * rstd; };
    const double sum = channel_sum<A>(args, c, [&](std::int64_t i) { return get(args.dy[i]); });
    const double dot = channel_sum<A>(args, c, [&](std::int64_t i) { return get(args.dy[i]) * h(i); });
    const auto put_sum = [&](A* out, double value) {
      if (out != nullptr) out[c] = (args.accumulate_params ? out[c] : A{0}) + static_cast<A>(value);
    };
    put_sum(args.dgain, dot);
    put_sum(args.dbias, sum);
    if (args.dx == nullptr) continue;
    const A factor = rstd * gain, mean_dy = static_cast<A>(sum / n), mean_dot = static_cast<A>(dot / n);
    for_channel(args, c, [&](std::int64_t i) {
      const A d = factor * (get(args.dy[i]) - mean_dy - h(i) * mean_dot);
      args.dx[i] = put<S>(args.accumulate_dx ? get(args.dx[i]) + d : d);
    });
  }
}

}  // namespace tenon::kernels::reference
