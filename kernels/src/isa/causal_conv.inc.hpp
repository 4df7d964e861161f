// Causal convolutions (contract: causal_conv.hpp). Lanes are channels, whose weights are turned once per
// block of positions; so every channel is one chain in the order of the reference.
#pragma once

#include <tenon/kernels/causal_conv.hpp>

#include "isa/math.inc.hpp"

namespace tenon::kernels {
namespace {

template <class S>
std::int64_t causal_conv_workspace(const CausalConvArgs<S>& args) {
  return (4 * args.width + kConvPositions + 1) * kConvChannels;
}

/// turned[j, c] = weight of x[t - j, c].
template <class S>
TENON_INLINE void turn_weights(const CausalConvArgs<S>& args, const JoinedRun& run, float* turned) {
  for (std::int64_t c = 0; c < run.width; ++c)
    for (std::int64_t j = 0; j < args.width; ++j)
      turned[j * kConvChannels + c] = args.weight[(run.to + c) * args.width + args.width - 1 - j];
}

/// The sum before SiLU of channels [c, c + n) of a run; taps(j) points at x[t - j] of the first of them.
template <class S, class Taps>
TENON_INLINE F conv_lanes(const CausalConvArgs<S>& args, const JoinedRun& run, const float* turned,
                          std::int64_t c, std::int64_t n, std::int64_t terms, Taps taps) {
  F sum = load_group(args.bias + run.to + c, n);
  for (std::int64_t j = 0; j < terms; ++j)
    sum = mul_add(load_group(turned + j * kConvChannels + c, n), load_group(taps(j), n), sum);
  return sum;
}

TENON_INLINE F silu_lanes(F v) {
  return v / (splat(1.0f) + exp(splat(0.0f) - v));
}

template <class S>
TENON_INLINE std::int64_t conv_terms_of(const CausalConvArgs<S>& args, std::int64_t sequence,
                                        std::int64_t t) {
  const std::int32_t* document = args.documents + sequence * args.time + t;
  return conv_terms(args.width, t, args.documents != nullptr,
                    [&](std::int64_t j) TENON_BODY { return document[-j]; });
}

template <class S>
void causal_conv_forward(const CausalConvArgs<S>& args, std::int64_t block_begin, std::int64_t block_end,
                         float* workspace) {
  const std::int64_t blocks = (args.time + kConvPositions - 1) / kConvPositions;
  std::int64_t terms[kConvPositions];
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    const std::int64_t sequence = block / blocks, t0 = block % blocks * kConvPositions;
    const std::int64_t left = args.time - t0, count = left < kConvPositions ? left : kConvPositions;
    for (std::int64_t i = 0; i < count; ++i) terms[i] = conv_terms_of(args, sequence, t0 + i);
    for (const JoinedRun* run = args.runs; run != args.runs + args.run_count; ++run) {
      turn_weights(args, *run, workspace);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = sequence * args.time + t0 + i;
        const S* x = args.x + row * args.columns + run->from;
        S* y = args.y + row * args.channels + run->to;
        for_lanes(0, run->width, [&](std::int64_t c, std::int64_t n) TENON_BODY {
          const F v = conv_lanes(args, *run, workspace, c, n, terms[i],
                                 [&](std::int64_t j) TENON_BODY { return x + c - j * args.columns; });
          store_group(y + c, silu_lanes(v), n);
        });
      }
    }
  }
}

/// Memory of the backward pass of one run: rows of kConvChannels.
struct ConvBackwardSpace {
  float* turned;  ///< [width]
  float* dv;      ///< [kConvPositions + width - 1]: gradients of the sums, from the block's first position on
  float* sums;    ///< [width + 1]: of the weights and the bias
  float* partial;  ///< [width + 1]: the same of one block of positions
};

/// dv of positions [t0, t0 + count), and the partial sums of the first `own` of them.
template <class S>
TENON_INLINE void conv_sums_back(const CausalConvArgs<S>& args, const JoinedRun& run, std::int64_t sequence,
                                 std::int64_t t0, std::int64_t count, std::int64_t own,
                                 const ConvBackwardSpace& space) {
  const std::int64_t k = args.width;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = sequence * args.time + t0 + i, terms = conv_terms_of(args, sequence, t0 + i);
    const S *x = args.x + row * args.columns + run.from, *dy = args.dy + row * args.channels + run.to;
    for_lanes(0, run.width, [&](std::int64_t c, std::int64_t n) TENON_BODY {
      const F v = conv_lanes(args, run, space.turned, c, n, terms,
                             [&](std::int64_t j) TENON_BODY { return x + c - j * args.columns; });
      const F one = splat(1.0f), s = one / (one + exp(splat(0.0f) - v));
      const F dv = load_group(dy + c, n) * (s * mul_add(v, one - s, one));
      store(space.dv + i * kConvChannels + c, dv);
      if (i >= own) return;
      float* sum = space.partial + c;
      for (std::int64_t j = 0; j < terms; ++j, sum += kConvChannels)
        store(sum, mul_add(dv, load_group(x + c - j * args.columns, n), load(sum)));
      sum = space.partial + k * kConvChannels + c;
      store(sum, load(sum) + dv);
    });
  }
}

/// dx of positions [t0, t0 + own) from dv of [t0, t0 + count).
template <class S>
TENON_INLINE void conv_inputs_back(const CausalConvArgs<S>& args, const JoinedRun& run, std::int64_t sequence,
                                   std::int64_t t0, std::int64_t count, std::int64_t own,
                                   const ConvBackwardSpace& space) {
  for (std::int64_t i = 0; i < own; ++i) {
    std::int64_t reach = 1;  // later positions that read this one follow one another
    while (reach < args.width && i + reach < count && conv_terms_of(args, sequence, t0 + i + reach) > reach)
      ++reach;
    S* dx = args.dx + (sequence * args.time + t0 + i) * args.columns + run.from;
    for_lanes(0, run.width, [&](std::int64_t c, std::int64_t n) TENON_BODY {
      F sum = splat(0.0f);
      for (std::int64_t j = 0; j < reach; ++j)
        sum = mul_add(load(space.dv + (i + j) * kConvChannels + c),
                      load(space.turned + j * kConvChannels + c), sum);
      store_group(dx + c, sum, n);
    });
  }
}

template <class S>
void causal_conv_backward(const CausalConvArgs<S>& args, std::int64_t run_begin, std::int64_t run_end,
                          float* workspace) {
  const std::int64_t k = args.width, all = (k + 1) * kConvChannels;
  ConvBackwardSpace space;
  space.turned = workspace, space.dv = space.turned + k * kConvChannels;
  space.sums = space.dv + (kConvPositions + k - 1) * kConvChannels, space.partial = space.sums + all;
  for (const JoinedRun* run = args.runs + run_begin; run != args.runs + run_end; ++run) {
    __builtin_memset(space.turned, 0, k * kConvChannels * sizeof(float));
    turn_weights(args, *run, space.turned);
    __builtin_memset(space.sums, 0, all * sizeof(float));
    for (std::int64_t sequence = 0; sequence < args.batch; ++sequence)
      for (std::int64_t t0 = 0; t0 < args.time; t0 += kConvPositions) {
        const std::int64_t left = args.time - t0, own = left < kConvPositions ? left : kConvPositions;
        const std::int64_t halo = left - own < k - 1 ? left - own : k - 1;
        __builtin_memset(space.partial, 0, all * sizeof(float));
        conv_sums_back(args, *run, sequence, t0, own + halo, own, space);
        conv_inputs_back(args, *run, sequence, t0, own + halo, own, space);
        for (std::int64_t i = 0; i < all; i += kLanes)
          store(space.sums + i, load(space.sums + i) + load(space.partial + i));
      }
    for (std::int64_t c = 0; c < run->width; ++c) {
      for (std::int64_t j = 0; j < k; ++j) {
        float& to = args.dweight[(run->to + c) * k + k - 1 - j];
        const float sum = space.sums[j * kConvChannels + c];
        to = args.accumulate ? to + sum : sum;
      }
      float& to = args.dbias[run->to + c];
      const float sum = space.sums[k * kConvChannels + c];
      to = args.accumulate ? to + sum : sum;
    }
  }
}

template <class S>
void causal_conv_step(const CausalConvArgs<S>& args, const ConvPlaces<S>& places, std::int64_t run_begin,
                      std::int64_t run_end, float* workspace) {
  const std::int64_t tail = args.width - 1;
  for (const JoinedRun* run = args.runs + run_begin; run != args.runs + run_end; ++run) {
    turn_weights(args, *run, workspace);
    for (std::int64_t t = 0; t < places.count; ++t) {
      const std::int64_t row = places.row + t;
      const std::int64_t terms =
          conv_terms(args.width, places.first + t, args.documents != nullptr, [&](std::int64_t j) TENON_BODY {
            return t >= j ? args.documents[row - j] : places.documents[tail + t - j];
          });
      for_lanes(0, run->width, [&](std::int64_t c, std::int64_t n) TENON_BODY {
        const F v = conv_lanes(args, *run, workspace, c, n, terms, [&](std::int64_t j) TENON_BODY {
          return t >= j ? args.x + (row - j) * args.columns + run->from + c
                        : places.kept + (tail + t - j) * args.channels + run->to + c;
        });
        store_group(args.y + row * args.channels + run->to + c, silu_lanes(v), n);
      });
    }
  }
}

}  // namespace
}  // namespace tenon::kernels
