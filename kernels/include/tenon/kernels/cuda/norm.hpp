// Kernel bodies of layer and RMS normalisation over rows: norm.hpp's formulas, with sums in trees. Both are
// one body: RMS normalisation is the layer's with a mean of zero. A row's later reads find it in the caches.
#pragma once

#include <cmath>
#include <tenon/kernels/cuda/rows.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

/// y = (x - mean) rstd gain + bias; not `centred`: mean 0. gain, bias, mean and rstd may be null; y may be x.
template <class S>
struct NormaliseRows {
  using A = Arith<S>;
  static constexpr std::size_t kShared = 2 * sizeof(A);  ///< per thread

  std::int64_t rows, columns;
  bool centred;
  A eps;
  const S* x;
  const A *gain, *bias;
  S* y;
  A *mean, *rstd;

  TENON_BOTH void operator()(const Block& block) const {
    A* const sums = block.shared<A>();
    A* const squares = sums + block.threads();
    const NormaliseRows& a = *this;
    for_rows(block, rows, [&](std::int64_t row) {
      const S* const x = a.x + row * a.columns;
      S* const y = a.y + row * a.columns;
      const A n = static_cast<A>(a.columns);
      const A mean =
          a.centred ? sum_over(block, sums, a.columns, [&](std::int64_t j) { return get(x[j]); }) / n : A{0};
      const A spread = sum_over(block, squares, a.columns, [&](std::int64_t j) {
        const A d = get(x[j]) - mean;
        return d * d;
      });
      const A rstd = 1 / std::sqrt(spread / n + a.eps);
      block.each([&](int thread) {
        for (std::int64_t j = thread; j < a.columns; j += block.threads()) {
          const A gain = a.gain != nullptr ? a.gain[j] : A{1}, bias = a.bias != nullptr ? a.bias[j] : A{0};
          y[j] = put<S>((get(x[j]) - mean) * rstd * gain + bias);
        }
        if (thread == 0 && a.mean != nullptr) a.mean[row] = mean;
        if (thread == 0 && a.rstd != nullptr) a.rstd[row] = rstd;
      });
    });
  }
};

/// With g = dy gain and h = (x - mean) rstd: dx (+)= rstd (g - mean(g) - h mean(g h)), where a null mean is 0
/// and removes the term mean(g). dx may be dy.
template <class S>
struct NormaliseRowsBackward {
  using A = Arith<S>;
  using Pair = Sums<A, 2>;
  static constexpr std::size_t kShared = sizeof(Pair);  ///< per thread

  std::int64_t rows, columns;
  const S *x, *dy;
  const A *gain, *mean, *rstd;
  S* dx;
  bool accumulate;

  TENON_BOTH void operator()(const Block& block) const {
    Pair* const pairs = block.shared<Pair>();
    const NormaliseRowsBackward& a = *this;
    for_rows(block, rows, [&](std::int64_t row) {
      const S* const x = a.x + row * a.columns;
      const S* const dy = a.dy + row * a.columns;
      S* const dx = a.dx + row * a.columns;
      const A mean = a.mean != nullptr ? a.mean[row] : A{0}, rstd = a.rstd[row];
      const auto g = [&](std::int64_t j) { return get(dy[j]) * (a.gain != nullptr ? a.gain[j] : A{1}); };
      const auto h = [&](std::int64_t j) { return (get(x[j]) - mean) * rstd; };
      const Pair sums = sum_over(block, pairs, a.columns, [&](std::int64_t j) {
        return Pair{{g(j), g(j) * h(j)}};
      });
      const A n = static_cast<A>(a.columns);
      const A mean_g = a.mean != nullptr ? sums.of[0] / n : A{0}, mean_gh = sums.of[1] / n;
      block.each([&](int thread) {
        for (std::int64_t j = thread; j < a.columns; j += block.threads()) {
          const A d = rstd * (g(j) - mean_g - h(j) * mean_gh);
          dx[j] = put<S>(a.accumulate ? get(dx[j]) + d : d);
        }
      });
    });
  }
};

/// A row's terms of a column's sums (column_sums.hpp): dy h for dgain, and dy for dbias.
template <class S>
struct NormParameterTerms {
  using A = Arith<S>;
  std::int64_t columns;
  const S *x, *dy;
  const A *mean, *rstd;

  TENON_BOTH Sums<A, 2> operator()(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = row * columns + column;
    const A above = get(dy[i]), centre = mean != nullptr ? mean[row] : A{0};
    return {{above * ((get(x[i]) - centre) * rstd[row]), above}};
  }
};

}  // namespace tenon::kernels::cuda
