// Reference norm of gated values: the formula of gated_norm.hpp, row by row.
#pragma once

#include <cmath>
#include <tenon/kernels/gated_norm.hpp>
#include <tenon/kernels/reference/scalar.hpp>

namespace tenon::kernels::reference {

/// Calls use(column, column of projected) for the columns of a group, and returns the run after its last.
template <class S, class Use>
const JoinedRun* for_gates(const GatedNormArgs<S>& args, const JoinedRun* run, std::int64_t group, Use use) {
  for (; run->to < (group + 1) * args.group_width && run->width > 0; ++run)
    for (std::int64_t c = 0; c < run->width; ++c) use(run->to + c, run->from + c);
  return run;
}

/// y silu(z).
template <class S>
Arith<S> gated_value(const GatedNormArgs<S>& args, std::int64_t row, std::int64_t column, std::int64_t gate) {
  const Arith<S> z = get(args.projected[row * args.columns + gate]);
  return get(args.y[row * args.groups * args.group_width + column]) * (z / (1 + std::exp(-z)));
}

/// 1 / the root mean square of a group.
template <class S>
Arith<S> gated_scale(const GatedNormArgs<S>& args, const JoinedRun* run, std::int64_t row,
                     std::int64_t group) {
  Arith<S> sum = 0;
  for_gates(args, run, group, [&](std::int64_t column, std::int64_t gate) {
    const Arith<S> v = gated_value(args, row, column, gate);
    sum += v * v;
  });
  return 1 / std::sqrt(sum / static_cast<Arith<S>>(args.group_width) + args.eps);
}

template <class S>
void gated_norm_forward(const GatedNormArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  const std::int64_t width = args.groups * args.group_width;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const JoinedRun* run = args.runs;
    for (std::int64_t group = 0; group < args.groups; ++group) {
      const Arith<S> scale = gated_scale(args, run, row, group);
      run = for_gates(args, run, group, [&](std::int64_t column, std::int64_t gate) {
        args.out[row * width + column] =
            put<S>(args.weight[column] * (gated_value(args, row, column, gate) * scale));
      });
    }
  }
}

template <class S>
void gated_norm_backward(const GatedNormArgs<S>& args, std::int64_t block_begin, std::int64_t block_end) {
  using A = Arith<S>;
  const std::int64_t width = args.groups * args.group_width;
  for (std::int64_t block = block_begin; block < block_end; ++block) {
    A* sums = args.sums + block * width;
    for (std::int64_t c = 0; c < width; ++c) sums[c] = 0;
    for (std::int64_t row = block * args.block; row < args.rows && row < (block + 1) * args.block; ++row) {
      const JoinedRun* run = args.runs;
      for (std::int64_t group = 0; group < args.groups; ++group) {
        const A scale = gated_scale(args, run, row, group);
        A dot = 0;
        for_gates(args, run, group, [&](std::int64_t column, std::int64_t gate) {
          dot += get(args.dout[row * width + column]) * args.weight[column] *
                 gated_value(args, row, column, gate);
        });
        const A mean = dot * scale * scale / static_cast<A>(args.group_width);
        run = for_gates(args, run, group, [&](std::int64_t column, std::int64_t gate) {
          const std::int64_t at = row * width + column, from = row * args.columns + gate;
          const A v = gated_value(args, row, column, gate), dout = get(args.dout[at]);
          const A d = scale * (dout * args.weight[column] - v * mean);
          const A z = get(args.projected[from]), s = 1 / (1 + std::exp(-z)), y = get(args.y[at]);
          sums[column] += dout * v * scale;
          args.dy[at] = put<S>(d * z * s);
          args.dprojected[from] = put<S>(d * y * (s + z * s * (1 - s)));
        });
      }
    }
  }
}

}  // namespace tenon::kernels::reference
