// Kernel bodies of the norm of gated values: out = weight v / root of (mean of v^2 over a group + eps) with
// v = y SiLU(z). A block has a group of a row, whose sums are trees.
#pragma once

#include <tenon/kernels/cuda/causal_conv.hpp>

namespace tenon::kernels::cuda {

/// S: storage of values, P: of the weight. Rows are groups of rows: index row * groups + group.
template <class S, class P>
struct GatedArgs {
  using A = Arith<S>;
  std::int64_t rows = 0, groups = 1, group_width = 0;
  std::int64_t columns = 0;                    ///< of a row of `projected`
  const std::int64_t* gate_columns = nullptr;  ///< [groups * group_width], of them
  A eps = 0;
  const S *y = nullptr, *projected = nullptr;
  const P* weight = nullptr;

  TENON_BOTH std::int64_t width() const { return groups * group_width; }
  TENON_BOTH A gate(std::int64_t row, std::int64_t column) const {
    return get(projected[row * columns + gate_columns[column]]);
  }
  TENON_BOTH A gated(std::int64_t row, std::int64_t column) const {
    const A z = gate(row, column);
    return get(y[row * width() + column]) * (z * sigmoid_of(z));
  }
  TENON_BOTH A scale_of(A squares) const {
    return 1 / std::sqrt(squares / static_cast<A>(group_width) + eps);
  }
};

/// `out`, or `scales` alone.
template <class S, class P>
struct GatedNormForward {
  using A = Arith<S>;
  GatedArgs<S, P> args;
  S* out;     ///< may be y; null: not wanted
  A* scales;  ///< [rows, groups]; null: not wanted

  Grid mesh() const { return grid_for_rows(args.rows * args.groups, args.group_width, sizeof(A)); }

  TENON_BOTH void operator()(const Block& block) const {
    const GatedNormForward& a = *this;
    const GatedArgs<S, P>& g = args;
    A* const values = block.shared<A>();
    for_rows(block, g.rows * g.groups, [&](std::int64_t index) {
      const std::int64_t row = index / g.groups, first = index % g.groups * g.group_width;
      const A squares = sum_over(block, values, g.group_width, [&](std::int64_t j) {
        const A v = g.gated(row, first + j);
        return v * v;
      });
      const A scale = g.scale_of(squares);
      block.each([&](int thread) {
        if (thread == 0 && a.scales != nullptr) a.scales[index] = scale;
        if (a.out == nullptr) return;
        for (std::int64_t j = first + thread; j < first + g.group_width; j += block.threads())
          a.out[row * g.width() + j] = put<S>(get(g.weight[j]) * (g.gated(row, j) * scale));
      });
    });
  }
};

/// Terms of the weight's gradient (column_sums.hpp).
template <class S, class P>
struct GatedWeightTerms {
  using A = Arith<S>;
  GatedArgs<S, P> args;
  const S* dout;
  const A* scales;

  TENON_BOTH Sums<A, 1> operator()(std::int64_t row, std::int64_t column) const {
    const A scale = scales[row * args.groups + column / args.group_width];
    return {{get(dout[row * args.width() + column]) * (args.gated(row, column) * scale)}};
  }
};

/// to (+)= sums.
template <class A, class P>
struct StoreSums {
  std::int64_t n;
  const A* sums;
  P* to;
  bool accumulate;

  Grid mesh() const { return grid_for(n); }

  TENON_BOTH void operator()(const Block& block) const {
    const StoreSums& a = *this;
    for_each_element(block, n, [&](std::int64_t i) {
      a.to[i] = put<P>(a.accumulate ? get(a.to[i]) + a.sums[i] : a.sums[i]);
    });
  }
};

/// dy, which may be dout, and the gates' gradients.
template <class S, class P>
struct GatedNormBackward {
  using A = Arith<S>;
  GatedArgs<S, P> args;
  const S* dout;
  const A* scales;
  S *dy, *dprojected;

  Grid mesh() const { return grid_for_rows(args.rows * args.groups, args.group_width, sizeof(A)); }

  TENON_BOTH void operator()(const Block& block) const {
    const GatedNormBackward& a = *this;
    const GatedArgs<S, P>& g = args;
    A* const values = block.shared<A>();
    for_rows(block, g.rows * g.groups, [&](std::int64_t index) {
      const std::int64_t row = index / g.groups, first = index % g.groups * g.group_width;
      const auto above = [&](std::int64_t j) { return get(a.dout[row * g.width() + j]) * get(g.weight[j]); };
      const A dot = sum_over(block, values, g.group_width,
                             [&](std::int64_t j) { return above(first + j) * g.gated(row, first + j); });
      const A scale = a.scales[index], mean = dot * scale * scale / static_cast<A>(g.group_width);
      block.each([&](int thread) {
        for (std::int64_t j = first + thread; j < first + g.group_width; j += block.threads()) {
          const A dv = scale * (above(j) - g.gated(row, j) * mean);
          const A z = g.gate(row, j), x = get(g.y[row * g.width() + j]);
          a.dy[row * g.width() + j] = put<S>(dv * (z * sigmoid_of(z)));
          a.dprojected[row * g.columns + g.gate_columns[j]] = put<S>(dv * x * silu_slope(z));
        }
      });
    });
  }
};

}  // namespace tenon::kernels::cuda
