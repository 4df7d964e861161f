// Layer and RMS normalization (contract: norm.hpp). Statistics of a row: 16 lane sums, then the lanes by
// halves; the variance is taken about the mean in a second pass, so that a large mean costs no accuracy.
#pragma once

#include <tenon/kernels/norm.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

/// Rows in one float sum before it joins the running total: bounds the growth of rounding errors.
constexpr std::int64_t kColumnGroup = 32;

template <class S>
void layer_norm_forward(const LayerNormForwardArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  const float inv_cols = 1.0f / static_cast<float>(args.cols);
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const S* x = args.x + r * args.cols;
    S* y = args.y + r * args.cols;
    F lanes = splat(0.0f);
    for_lanes(0, args.cols,
              [&](std::int64_t j, std::int64_t n) TENON_BODY { lanes = lanes + load_group(x + j, n); });
    const float mean = sum_lanes(lanes) * inv_cols;
    lanes = splat(0.0f);
    for_lanes(0, args.cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      F d = load_group(x + j, n) - splat(mean);
      if (n < kLanes) d = select(first_lanes(n), d, splat(0.0f));
      lanes = mul_add(d, d, lanes);
    });
    const float rstd = 1.0f / __builtin_sqrtf(sum_lanes(lanes) * inv_cols + args.eps);
    for_lanes(0, args.cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      F h = (load_group(x + j, n) - splat(mean)) * splat(rstd);
      if (args.gain != nullptr) h = h * load_group(args.gain + j, n);
      if (args.bias != nullptr) h = h + load_group(args.bias + j, n);
      store_group(y + j, h, n);
    });
    if (args.mean != nullptr) args.mean[r] = mean;
    if (args.rstd != nullptr) args.rstd[r] = rstd;
  }
}

template <class S>
void layer_norm_backward_input(const LayerNormBackwardArgs<S>& args, std::int64_t row_begin,
                               std::int64_t row_end) {
  const float inv_cols = 1.0f / static_cast<float>(args.cols);
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const S* x = args.x + r * args.cols;
    const S* dy = args.dy + r * args.cols;
    S* dx = args.dx + r * args.cols;
    const F mean = splat(args.mean[r]), rstd = splat(args.rstd[r]);
    const auto gradient = [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F g = load_group(dy + j, n);
      return args.gain != nullptr ? g * load_group(args.gain + j, n) : g;
    };
    F sum_g = splat(0.0f), sum_gh = splat(0.0f);
    for_lanes(0, args.cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F g = gradient(j, n);  // zero after the end, so h there does no harm
      sum_g = sum_g + g;
      sum_gh = mul_add(g, (load_group(x + j, n) - mean) * rstd, sum_gh);
    });
    const F mean_g = splat(sum_lanes(sum_g) * inv_cols), mean_gh = splat(sum_lanes(sum_gh) * inv_cols);
    for_lanes(0, args.cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F h = (load_group(x + j, n) - mean) * rstd;
      F d = rstd * (gradient(j, n) - mean_g - h * mean_gh);
      if (args.accumulate_dx) d = load_group(dx + j, n) + d;
      store_group(dx + j, d, n);
    });
  }
}

/// Groups of 16 columns that are summed together, so that whole cache lines of a row are used at once.
constexpr int kColumnsAtOnce = TENON_SIMD_BYTES == 64 ? 4 : 1;

/// totals[g] of `groups` groups of columns: the sum over rows of term(row, g), in order and by groups of
/// rows.
template <int groups, class Term>
TENON_INLINE void column_totals(std::int64_t rows, F (&totals)[groups], Term term) {
#pragma GCC unroll 8
  for (int g = 0; g < groups; ++g) totals[g] = splat(0.0f);
  for (std::int64_t r0 = 0; r0 < rows; r0 += kColumnGroup) {
    const std::int64_t end = rows - r0 < kColumnGroup ? rows : r0 + kColumnGroup;
    F sums[groups];
#pragma GCC unroll 8
    for (int g = 0; g < groups; ++g) sums[g] = splat(0.0f);
    for (std::int64_t r = r0; r < end; ++r)
#pragma GCC unroll 8
      for (int g = 0; g < groups; ++g) sums[g] = sums[g] + term(r, g);
#pragma GCC unroll 8
    for (int g = 0; g < groups; ++g) totals[g] = totals[g] + sums[g];
  }
}

TENON_INLINE void put_total(float* out, F total, bool accumulate, std::int64_t n) {
  store_group(out, accumulate ? load_group(out, n) + total : total, n);
}

/// out[col_begin .. col_end) (+)= totals over rows of term(row, column, count); no sum depends on the split.
template <class Term>
TENON_INLINE void put_column_totals(std::int64_t rows, std::int64_t col_begin, std::int64_t col_end,
                                    bool accumulate, float* out, Term term) {
  std::int64_t j = col_begin;
  for (; j + kColumnsAtOnce * kLanes <= col_end; j += kColumnsAtOnce * kLanes) {
    F totals[kColumnsAtOnce];
    column_totals(rows, totals, [&](std::int64_t r, int g) TENON_BODY {
      return term(r, j + g * kLanes, std::int64_t{kLanes});
    });
    for (int g = 0; g < kColumnsAtOnce; ++g) put_total(out + j + g * kLanes, totals[g], accumulate, kLanes);
  }
  for_lanes(j, col_end, [&](std::int64_t i, std::int64_t n) TENON_BODY {
    F totals[1];
    column_totals(rows, totals, [&](std::int64_t r, int) TENON_BODY { return term(r, i, n); });
    put_total(out + i, totals[0], accumulate, n);
  });
}

template <class S>
void layer_norm_backward_params(const LayerNormBackwardArgs<S>& args, std::int64_t col_begin,
                                std::int64_t col_end) {
  const auto dy = [&](std::int64_t r, std::int64_t j, std::int64_t n)
                      TENON_BODY { return load_group(args.dy + r * args.cols + j, n); };
  const auto normalised = [&](std::int64_t r, std::int64_t j, std::int64_t n) TENON_BODY {
    const F x = load_group(args.x + r * args.cols + j, n);
    return dy(r, j, n) * ((x - splat(args.mean[r])) * splat(args.rstd[r]));
  };
  // Columns that stay in the second cache from one sum to the other.
  constexpr std::int64_t kBlock = kColumnsAtOnce * kLanes;
  for (std::int64_t j = col_begin; j < col_end; j += kBlock) {
    const std::int64_t end = col_end - j < kBlock ? col_end : j + kBlock;
    if (args.dgain != nullptr)
      put_column_totals(args.rows, j, end, args.accumulate_params, args.dgain, normalised);
    if (args.dbias != nullptr) put_column_totals(args.rows, j, end, args.accumulate_params, args.dbias, dy);
  }
}

template <class S>
void rms_norm_forward(const LayerNormForwardArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const S* x = args.x + r * args.cols;
    F lanes = splat(0.0f);
    for_lanes(0, args.cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F a = load_group(x + j, n);
      lanes = mul_add(a, a, lanes);
    });
    const float rstd = 1.0f / __builtin_sqrtf(sum_lanes(lanes) / static_cast<float>(args.cols) + args.eps);
    for_lanes(0, args.cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      F h = load_group(x + j, n) * splat(rstd);
      if (args.gain != nullptr) h = h * load_group(args.gain + j, n);
      store_group(args.y + r * args.cols + j, h, n);
    });
    if (args.rstd != nullptr) args.rstd[r] = rstd;
  }
}

template <class S>
void rms_norm_backward_input(const LayerNormBackwardArgs<S>& args, std::int64_t row_begin,
                             std::int64_t row_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const F rstd = splat(args.rstd[r]);
    const auto g = [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F dy = load_group(args.dy + r * args.cols + j, n);
      return args.gain != nullptr ? dy * load_group(args.gain + j, n) : dy;
    };
    const auto h = [&](std::int64_t j, std::int64_t n)
                       TENON_BODY { return load_group(args.x + r * args.cols + j, n) * rstd; };
    F lanes = splat(0.0f);
    for_lanes(0, args.cols,
              [&](std::int64_t j, std::int64_t n) TENON_BODY { lanes = mul_add(g(j, n), h(j, n), lanes); });
    const F mean = splat(sum_lanes(lanes) / static_cast<float>(args.cols));
    S* dx = args.dx + r * args.cols;
    for_lanes(0, args.cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F d = rstd * (g(j, n) - h(j, n) * mean);
      store_group(dx + j, args.accumulate_dx ? load_group(dx + j, n) + d : d, n);
    });
  }
}

template <class S>
void rms_norm_backward_params(const LayerNormBackwardArgs<S>& args, std::int64_t col_begin,
                              std::int64_t col_end) {
  put_column_totals(args.rows, col_begin, col_end, args.accumulate_params, args.dgain,
                    [&](std::int64_t r, std::int64_t j, std::int64_t n) TENON_BODY {
                      const std::int64_t i = r * args.cols + j;
                      return load_group(args.dy + i, n) * (load_group(args.x + i, n) * splat(args.rstd[r]));
                    });
}

template <class S>
void column_sums(const S* x, float* y, std::int64_t rows, std::int64_t cols, std::int64_t col_begin,
                 std::int64_t col_end, bool accumulate) {
  put_column_totals(rows, col_begin, col_end, accumulate, y,
                    [&](std::int64_t r, std::int64_t j, std::int64_t n)
                        TENON_BODY { return load_group(x + r * cols + j, n); });
}

}  // namespace
}  // namespace tenon::kernels
