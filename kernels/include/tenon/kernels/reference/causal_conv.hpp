// Reference causal convolution: the sums of causal_conv.hpp, channel by channel.
#pragma once

#include <cmath>
#include <tenon/kernels/causal_conv.hpp>
#include <tenon/kernels/reference/scalar.hpp>

namespace tenon::kernels::reference {

template <class S>
std::int64_t causal_conv_workspace(const CausalConvArgs<S>& args) {
  return args.time + args.width + 1;
}

template <class S>
std::int64_t conv_terms_at(const CausalConvArgs<S>& args, std::int64_t sequence, std::int64_t t) {
  return conv_terms(args.width, t, args.documents != nullptr,
                    [&](std::int64_t j) { return args.documents[sequence * args.time + t - j]; });
}

/// The sum before SiLU; term(j) is x at t - j.
template <class S, class Term>
Arith<S> conv_sum(const CausalConvArgs<S>& args, std::int64_t channel, std::int64_t terms, Term term) {
  Arith<S> sum = args.bias[channel];
  for (std::int64_t j = 0; j < terms; ++j)
    sum += args.weight[channel * args.width + args.width - 1 - j] * term(j);
  return sum;
}

template <class S>
void causal_conv_forward(const CausalConvArgs<S>& args, std::int64_t block_begin, std::int64_t block_end,
                         Arith<S>*) {
  using A = Arith<S>;
  const std::int64_t blocks = conv_blocks(args) / (args.batch > 0 ? args.batch : 1);
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    const std::int64_t sequence = block / blocks, t0 = block % blocks * kConvPositions;
    for (std::int64_t t = t0; t < args.time && t < t0 + kConvPositions; ++t) {
      const std::int64_t row = sequence * args.time + t, terms = conv_terms_at(args, sequence, t);
      for (const JoinedRun* run = args.runs; run != args.runs + args.run_count; ++run)
        for (std::int64_t c = 0; c < run->width; ++c) {
          const S* x = args.x + row * args.columns + run->from + c;
          const A v =
              conv_sum(args, run->to + c, terms, [&](std::int64_t j) { return get(x[-j * args.columns]); });
          args.y[row * args.channels + run->to + c] = put<S>(v / (1 + std::exp(-v)));
        }
    }
  }
}

/// One channel of one sequence; dw: sums of [width], then of the bias.
template <class S>
void conv_channel_backward(const CausalConvArgs<S>& args, std::int64_t sequence, std::int64_t from,
                           std::int64_t channel, Arith<S>* dv, Arith<S>* dw) {
  using A = Arith<S>;
  const std::int64_t row = sequence * args.time, k = args.width;
  const S* x = args.x + row * args.columns + from;
  for (std::int64_t t = 0; t < args.time; ++t) {
    const std::int64_t terms = conv_terms_at(args, sequence, t);
    const A v =
        conv_sum(args, channel, terms, [&](std::int64_t j) { return get(x[(t - j) * args.columns]); });
    const A s = 1 / (1 + std::exp(-v));
    dv[t] = get(args.dy[(row + t) * args.channels + channel]) * (s + v * s * (1 - s));
    dw[k] += dv[t];
    for (std::int64_t j = 0; j < terms; ++j) dw[k - 1 - j] += dv[t] * get(x[(t - j) * args.columns]);
  }
  for (std::int64_t t = 0; t < args.time; ++t) {
    A sum = 0;
    for (std::int64_t j = 0; j < k && t + j < args.time; ++j)
      if (j < conv_terms_at(args, sequence, t + j)) sum += dv[t + j] * args.weight[channel * k + k - 1 - j];
    args.dx[(row + t) * args.columns + from] = put<S>(sum);
  }
}

template <class S>
void causal_conv_backward(const CausalConvArgs<S>& args, std::int64_t run_begin, std::int64_t run_end,
                          Arith<S>* workspace) {
  using A = Arith<S>;
  const std::int64_t k = args.width;
  A* dw = workspace + args.time;
  for (const JoinedRun* run = args.runs + run_begin; run != args.runs + run_end; ++run)
    for (std::int64_t c = run->to; c < run->to + run->width; ++c) {
      for (std::int64_t j = 0; j <= k; ++j) dw[j] = 0;
      for (std::int64_t sequence = 0; sequence < args.batch; ++sequence)
        conv_channel_backward(args, sequence, run->from + c - run->to, c, workspace, dw);
      for (std::int64_t j = 0; j < k; ++j) {
        A& to = args.dweight[c * k + j];
        to = args.accumulate ? to + dw[j] : dw[j];
      }
      args.dbias[c] = args.accumulate ? args.dbias[c] + dw[k] : dw[k];
    }
}

template <class S>
void causal_conv_step(const CausalConvArgs<S>& args, const ConvPlaces<S>& places, std::int64_t run_begin,
                      std::int64_t run_end, Arith<S>*) {
  using A = Arith<S>;
  const std::int64_t tail = args.width - 1;
  for (std::int64_t t = 0; t < places.count; ++t) {
    const std::int64_t row = places.row + t;
    const std::int64_t terms = conv_terms(
        args.width, places.first + t, args.documents != nullptr,
        [&](std::int64_t j) { return t >= j ? args.documents[row - j] : places.documents[tail + t - j]; });
    for (const JoinedRun* run = args.runs + run_begin; run != args.runs + run_end; ++run)
      for (std::int64_t c = 0; c < run->width; ++c) {
        const A v = conv_sum(args, run->to + c, terms, [&](std::int64_t j) {
          return get(t >= j ? args.x[(row - j) * args.columns + run->from + c]
                            : places.kept[(tail + t - j) * args.channels + run->to + c]);
        });
        args.y[row * args.channels + run->to + c] = put<S>(v / (1 + std::exp(-v)));
      }
  }
}

}  // namespace tenon::kernels::reference
