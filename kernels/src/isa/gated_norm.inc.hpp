// Norms of gated values (contract: gated_norm.hpp). The sum of squares of a group runs in 16 lanes over its
// runs one after the other, then the lanes by halves.
#pragma once

#include <tenon/kernels/gated_norm.hpp>

#include "isa/math.inc.hpp"

namespace tenon::kernels {
namespace {

/// Calls use(column, column of projected, count) for the columns of a group in vectors; returns the run after
/// its last.
template <class S, class Use>
TENON_INLINE const JoinedRun* gate_lanes(const GatedNormArgs<S>& args, const JoinedRun* run,
                                         std::int64_t group, Use use) {
  for (; run->to < (group + 1) * args.group_width && run->width > 0; ++run)
    for_lanes(0, run->width,
              [&](std::int64_t c, std::int64_t n) TENON_BODY { use(run->to + c, run->from + c, n); });
  return run;
}

TENON_INLINE F sigmoid_lanes(F z) {
  return splat(1.0f) / (splat(1.0f) + exp(splat(0.0f) - z));
}

template <class S>
void gated_norm_forward(const GatedNormArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  const std::int64_t width = args.groups * args.group_width;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const S *y = args.y + row * width, *z = args.projected + row * args.columns;
    S* out = args.out + row * width;
    const auto gated = [&](std::int64_t column, std::int64_t gate, std::int64_t n) TENON_BODY {
      const F g = load_group(z + gate, n);
      return load_group(y + column, n) * (g * sigmoid_lanes(g));
    };
    const JoinedRun* run = args.runs;
    for (std::int64_t group = 0; group < args.groups; ++group) {
      F lanes = splat(0.0f);
      gate_lanes(args, run, group, [&](std::int64_t column, std::int64_t gate, std::int64_t n) TENON_BODY {
        const F v = gated(column, gate, n);
        lanes = mul_add(v, v, lanes);
      });
      const F scale =
          splat(1.0f / __builtin_sqrtf(sum_lanes(lanes) / static_cast<float>(args.group_width) + args.eps));
      run = gate_lanes(args, run, group,
                       [&](std::int64_t column, std::int64_t gate, std::int64_t n) TENON_BODY {
                         const F v = gated(column, gate, n) * scale;
                         store_group(out + column, load_group(args.weight + column, n) * v, n);
                       });
    }
  }
}

template <class S>
void gated_norm_row_backward(const GatedNormArgs<S>& args, std::int64_t row, float* sums) {
  const std::int64_t width = args.groups * args.group_width;
  const S *y = args.y + row * width, *z = args.projected + row * args.columns,
          *dout = args.dout + row * width;
  S *dy = args.dy + row * width, *dz = args.dprojected + row * args.columns;
  const JoinedRun* run = args.runs;
  for (std::int64_t group = 0; group < args.groups; ++group) {
    F squares = splat(0.0f), dots = splat(0.0f);
    gate_lanes(args, run, group, [&](std::int64_t column, std::int64_t gate, std::int64_t n) TENON_BODY {
      const F g = load_group(z + gate, n), v = load_group(y + column, n) * (g * sigmoid_lanes(g));
      squares = mul_add(v, v, squares);
      dots = mul_add(load_group(dout + column, n) * load_group(args.weight + column, n), v, dots);
    });
    const float inverse = 1.0f / static_cast<float>(args.group_width);
    const float root = 1.0f / __builtin_sqrtf(sum_lanes(squares) * inverse + args.eps);
    const F scale = splat(root), mean = splat(sum_lanes(dots) * root * root * inverse);
    run =
        gate_lanes(args, run, group, [&](std::int64_t column, std::int64_t gate, std::int64_t n) TENON_BODY {
          const F g = load_group(z + gate, n), s = sigmoid_lanes(g), value = load_group(y + column, n);
          const F v = value * (g * s), back = load_group(dout + column, n);
          const F d = scale * (back * load_group(args.weight + column, n) - v * mean);
          store_group(sums + column, mul_add(back, v * scale, load_group(sums + column, n)), n);
          store_group(dy + column, d * (g * s), n);
          store_group(dz + gate, d * value * (s * mul_add(g, splat(1.0f) - s, splat(1.0f))), n);
        });
  }
}

template <class S>
void gated_norm_backward(const GatedNormArgs<S>& args, std::int64_t block_begin, std::int64_t block_end) {
  const std::int64_t width = args.groups * args.group_width;
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    float* sums = args.sums + block * width;
    __builtin_memset(sums, 0, width * sizeof(float));
    for (std::int64_t row = block * args.block; row < args.rows && row < (block + 1) * args.block; ++row)
      gated_norm_row_backward(args, row, sums);
  }
}

}  // namespace
}  // namespace tenon::kernels
