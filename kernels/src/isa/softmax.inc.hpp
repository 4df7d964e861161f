// Softmax and softmax cross-entropy (contract: softmax.hpp). exp is computed of differences from the running
// maximum, so nothing overflows; sums run in 16 lanes and fold by halves.
#pragma once

#include <tenon/kernels/softmax.hpp>

#include "isa/math.inc.hpp"

namespace tenon::kernels {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

template <class S>
TENON_INLINE float row_max(const S* x, std::int64_t n) {
  F lanes = splat(kMinusInfinity);
  for_lanes(0, n, [&](std::int64_t j, std::int64_t count) TENON_BODY {
    F a = load_group(x + j, count);
    if (count < kLanes) a = select(first_lanes(count), a, splat(kMinusInfinity));
    lanes = max(a, lanes);  // max() ignores a NaN here; it returns through exp
  });
  return max_lanes(lanes);
}

/// exp(x), and 0 where it is below the smallest normal number: as good in sums that hold a 1, and processors
/// take a hundred times as long for a subnormal number as for another. A hidden -infinity would make one.
TENON_INLINE F weight_exp(F x) {
  const F lowest = splat(-87.0f);
  return select(x < lowest, splat(0.0f), exp(max(lowest, x)));
}

/// Sum of exp(x - shift); calls put(j, count, value) for each group of terms.
template <class S, class Put>
TENON_INLINE float row_exp_sum(const S* x, std::int64_t n, float factor, float shift, Put put) {
  F lanes = splat(0.0f);
  for_lanes(0, n, [&](std::int64_t j, std::int64_t count) TENON_BODY {
    F e = weight_exp(splat(factor) * load_group(x + j, count) - splat(shift));
    if (count < kLanes) e = select(first_lanes(count), e, splat(0.0f));
    put(j, count, e);
    lanes = lanes + e;
  });
  return sum_lanes(lanes);
}

TENON_INLINE float log_one(float x) {
  return log(splat(x)).v[0][0];
}
TENON_INLINE float exp_one(float x) {
  return exp(splat(x)).v[0][0];
}

template <class S>
void softmax_forward(float factor, const S* x, S* y, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    // The extreme of factor x: with a negative factor it is that of the least x.
    F lanes = splat(kMinusInfinity);
    for_lanes(0, cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      F a = splat(factor) * load_group(x + j, n);
      if (n < kLanes) a = select(first_lanes(n), a, splat(kMinusInfinity));
      lanes = max(a, lanes);
    });
    const float shift = max_lanes(lanes);
    const float sum = row_exp_sum(x, cols, factor, shift, [](std::int64_t, std::int64_t, F) TENON_BODY {});
    const F inverse = splat(1.0f / sum);
    for_lanes(0, cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      store_group(y + j, exp(splat(factor) * load_group(x + j, n) - splat(shift)) * inverse, n);
    });
  }
}

template <class S>
void softmax_backward(float factor, const S* y, const S* dy, S* dx, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, y += cols, dy += cols, dx += cols) {
    F lanes = splat(0.0f);
    for_lanes(0, cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      lanes = mul_add(load_group(y + j, n), load_group(dy + j, n), lanes);
    });
    const F dot = splat(sum_lanes(lanes));
    for_lanes(0, cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      store_group(dx + j, splat(factor) * load_group(y + j, n) * (load_group(dy + j, n) - dot), n);
    });
  }
}

template <class S>
void cross_entropy_begin(const CrossEntropyArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    args.running_max[r] = kMinusInfinity;
    args.running_sum[r] = 0.0f;
    args.target_logit[r] = 0.0f;
  }
}

template <class S>
void cross_entropy_chunk(const CrossEntropyArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const S* x = args.logits + r * args.ld;
    const float before = args.running_max[r];
    const float here = row_max(x, args.cols);
    const float shift = here > before ? here : before;
    // A chunk of -infinity (or of NaN) alone leaves no finite shift; then the terms themselves are the
    // answer.
    const float base = shift == kMinusInfinity ? 0.0f : shift;
    const float kept = args.running_sum[r] == 0.0f ? 0.0f : args.running_sum[r] * exp_one(before - base);
    args.running_sum[r] =
        kept + row_exp_sum(x, args.cols, 1.0f, base, [](std::int64_t, std::int64_t, F) TENON_BODY {});
    args.running_max[r] = shift;
    const std::int64_t target = args.targets[r] - args.col_begin;
    if (target >= 0 && target < args.cols) args.target_logit[r] = load_one(x + target);
  }
}

template <class S>
void cross_entropy_finish(const CrossEntropyArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const float base = args.running_max[r] == kMinusInfinity ? 0.0f : args.running_max[r];
    const float lse = base + log_one(args.running_sum[r]);
    if (args.lse != nullptr) args.lse[r] = lse;
    if (args.loss != nullptr) args.loss[r] = args.targets[r] < 0 ? 0.0f : lse - args.target_logit[r];
  }
}

template <class S>
void cross_entropy_backward(const CrossEntropyArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const S* x = args.logits + r * args.ld;
    S* dx = args.dlogits + r * args.ld;
    if (args.targets[r] < 0) {
      for_lanes(0, args.cols,
                [&](std::int64_t j, std::int64_t n) TENON_BODY { store_group(dx + j, splat(0.0f), n); });
      continue;
    }
    const F lse = splat(args.lse[r]), factor = splat(args.scale), low = splat(args.floor),
            high = splat(args.floor + args.peak);
    // Column of the target in this chunk, or none: a vocabulary fits 31 bits.
    const std::int64_t column = args.targets[r] - args.col_begin;
    const I target = splat_int(static_cast<std::int32_t>(column >= 0 && column < args.cols ? column : -1));
    for_lanes(0, args.cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const I onehot = lanes_from(j) == target;
      const F p = exp(load_group(x + j, n) - lse);
      store_group(dx + j, (p - select(onehot, high, low)) * factor, n);
    });
  }
}

}  // namespace
}  // namespace tenon::kernels
