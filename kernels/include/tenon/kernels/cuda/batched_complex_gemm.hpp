// Kernel body of products of complex matrices, one per mode. One thread computes a few rows and columns of
// one mode, its neighbours the same of the next modes; a sum is one chain of ascending terms, two products
// for either part, so the bits are those of reference/gemm.hpp.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/gemm.hpp>

namespace tenon::kernels::cuda {

/// Layout of a factor's matrices: element (i, j) of mode m is the pair of reals at data + 2 ((i row + j
/// column) modes + m). Conjugated where `sign` is -1.
template <class T>
struct ModeMatrices {
  const T* data;
  std::int64_t row, column;
  T sign;
};

/// c[p, q, m] (+)= sum over r of a[p, r, m] b[r, q, m]; a thread has `kSide` by `kSide` of them.
template <class T, int kSide>
struct ModeSums {
  ModeMatrices<T> a, b;
  T* c;
  std::int64_t rows, terms, columns, modes;
  bool accumulate;

  TENON_BOTH std::int64_t items() const {
    return (rows + kSide - 1) / kSide * ((columns + kSide - 1) / kSide) * modes;
  }

  TENON_BOTH void operator()(const Block& block) const {
    const ModeSums& s = *this;
    for_each_element(block, items(), [&](std::int64_t item) {
      const std::int64_t m = item % s.modes, tile = item / s.modes, tiles = (s.columns + kSide - 1) / kSide;
      s.sums(tile / tiles * kSide, tile % tiles * kSide, m);
    });
  }

 private:
  struct Complex {
    T re, im;
  };
  TENON_BOTH Complex element(const ModeMatrices<T>& of, std::int64_t i, std::int64_t j,
                             std::int64_t m) const {
    const T* const at = of.data + 2 * ((i * of.row + j * of.column) * modes + m);
    return {at[0], of.sign * at[1]};
  }

  TENON_BOTH void sums(std::int64_t first_row, std::int64_t first_column, std::int64_t m) const {
    Complex sum[kSide][kSide];
    TENON_UNROLL
    for (int p = 0; p < kSide; ++p) TENON_UNROLL
    for (int q = 0; q < kSide; ++q) sum[p][q] = {0, 0};
    for (std::int64_t r = 0; r < terms; ++r) {
      Complex left[kSide], right[kSide];
      // Beyond the last row or column the last one is read again, and its sums are not written.
      TENON_UNROLL
      for (int p = 0; p < kSide; ++p) left[p] = element(a, least(first_row + p, rows - 1), r, m);
      TENON_UNROLL
      for (int q = 0; q < kSide; ++q) right[q] = element(b, r, least(first_column + q, columns - 1), m);
      TENON_UNROLL
      for (int p = 0; p < kSide; ++p) TENON_UNROLL
      for (int q = 0; q < kSide; ++q) {
        sum[p][q].re += left[p].re * right[q].re;
        sum[p][q].re -= left[p].im * right[q].im;
        sum[p][q].im += left[p].re * right[q].im;
        sum[p][q].im += left[p].im * right[q].re;
      }
    }
    TENON_UNROLL
    for (int p = 0; p < kSide; ++p) TENON_UNROLL
    for (int q = 0; q < kSide; ++q) {
      if (first_row + p >= rows || first_column + q >= columns) continue;
      T* const out = c + 2 * (((first_row + p) * columns + first_column + q) * modes + m);
      out[0] = accumulate ? out[0] + sum[p][q].re : sum[p][q].re;
      out[1] = accumulate ? out[1] + sum[p][q].im : sum[p][q].im;
    }
  }
  static TENON_BOTH std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
};

/// Rows and columns of a thread where a product has enough of them to keep a device busy all the same.
inline constexpr int kModeSide = 4;

/// y from x and w
template <class T, int kSide>
ModeSums<T, kSide> mode_forward(const BatchedComplexGemmArgs<T>& args) {
  return {{args.x, args.in, 1, 1},
          {args.w, args.out, 1, 1},
          args.y,
          args.batch,
          args.in,
          args.out,
          args.modes,
          false};
}
/// dx from dy and w
template <class T, int kSide>
ModeSums<T, kSide> mode_backward_input(const BatchedComplexGemmArgs<T>& args) {
  return {{args.dy, args.out, 1, 1},
          {args.w, 1, args.out, -1},
          args.dx,
          args.batch,
          args.out,
          args.in,
          args.modes,
          false};
}
/// dw from x and dy
template <class T, int kSide>
ModeSums<T, kSide> mode_backward_weight(const BatchedComplexGemmArgs<T>& args) {
  return {
      {args.x, 1, args.in, -1}, {args.dy, args.out, 1, 1}, args.dw, args.in, args.batch, args.out, args.modes,
      args.accumulate_dw};
}

}  // namespace tenon::kernels::cuda
