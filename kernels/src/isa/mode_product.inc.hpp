// Products of complex matrices per mode (contract: mode_product.hpp). A group of 16 modes is taken out of all
// operands with real and imaginary parts apart, conjugated and negated there, so that the product itself is
// nothing but fused multiply-adds of vectors in registers. Terms have the order of the reference.
#pragma once

#include <tenon/kernels/mode_product.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

/// Rows and columns of the result whose sums are in registers at once.
constexpr std::int64_t kModeRows = 2, kModeColumns = TENON_SIMD_BYTES == 64 ? 4 : 2;
/// Vectors of an element: left operands hold re, im, -im, right ones re, im.
constexpr std::int64_t kLeftParts = 3, kRightParts = 2;

/// Where element (row, column) of an operand lies: elements apart.
struct ModeMatrix {
  std::int64_t row = 0, column = 0;
  TENON_INLINE std::int64_t at(std::int64_t i, std::int64_t j) const { return i * row + j * column; }
};

/// Modes [m, m + n) of the element at `from`.
TENON_INLINE void part_modes(const float* from, std::int64_t n, float* re, float* im) {
  if (n == kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      re[l] = from[2 * l];
      im[l] = from[2 * l + 1];
    }
    return;
  }
  for (std::int64_t l = 0; l < kLanes; ++l) {
    re[l] = l < n ? from[2 * l] : 0.0f;
    im[l] = l < n ? from[2 * l + 1] : 0.0f;
  }
}

TENON_INLINE void join_modes(F re, F im, std::int64_t n, bool accumulate, float* to) {
  float both[2][kLanes];
  store(both[0], re);
  store(both[1], im);
  for (std::int64_t l = 0; l < n; ++l) {
    to[2 * l] = accumulate ? to[2 * l] + both[0][l] : both[0][l];
    to[2 * l + 1] = accumulate ? to[2 * l + 1] + both[1][l] : both[1][l];
  }
}

struct ModeSums {
  std::int64_t rows = 0, terms = 0, columns = 0, modes = 0;
  const float* left = nullptr;
  const float* right = nullptr;
  float* out = nullptr;
  ModeMatrix left_at, right_at, out_at;  ///< (row, term), (term, column), (row, column)
  bool conjugate_left = false, conjugate_right = false, accumulate = false;
  float* workspace = nullptr;
};

TENON_INLINE std::int64_t mode_sums_workspace(std::int64_t rows, std::int64_t terms, std::int64_t columns) {
  return (rows * terms * kLeftParts + terms * columns * kRightParts) * kLanes;
}

/// Sums of rows p0, p0 + 1 and columns q0 ...; those behind the last repeat it and are not stored.
TENON_INLINE void mode_block(const ModeSums& s, const float* left, const float* right, std::int64_t p0,
                             std::int64_t q0, std::int64_t m, std::int64_t n) {
  F re[kModeRows][kModeColumns], im[kModeRows][kModeColumns];
  const float* rows[kModeRows];
  const float* columns[kModeColumns];
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < kModeRows; ++p)
    rows[p] = left + (p0 + p < s.rows ? p0 + p : s.rows - 1) * s.terms * kLeftParts * kLanes;
#pragma GCC unroll 4
  for (std::int64_t q = 0; q < kModeColumns; ++q)
    columns[q] = right + (q0 + q < s.columns ? q0 + q : s.columns - 1) * s.terms * kRightParts * kLanes;
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < kModeRows; ++p)
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < kModeColumns; ++q) re[p][q] = im[p][q] = splat(0.0f);
  for (std::int64_t r = 0; r < s.terms; ++r) {
    F b_re[kModeColumns], b_im[kModeColumns];
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < kModeColumns; ++q) {
      b_re[q] = load(columns[q] + r * kRightParts * kLanes);
      b_im[q] = load(columns[q] + (r * kRightParts + 1) * kLanes);
    }
#pragma GCC unroll 4
    for (std::int64_t p = 0; p < kModeRows; ++p) {
      const float* a = rows[p] + r * kLeftParts * kLanes;
      const F a_re = load(a), a_im = load(a + kLanes), minus_a_im = load(a + 2 * kLanes);
#pragma GCC unroll 4
      for (std::int64_t q = 0; q < kModeColumns; ++q) {
        re[p][q] = mul_add(minus_a_im, b_im[q], mul_add(a_re, b_re[q], re[p][q]));
        im[p][q] = mul_add(a_im, b_re[q], mul_add(a_re, b_im[q], im[p][q]));
      }
    }
  }
  for (std::int64_t p = 0; p < kModeRows && p0 + p < s.rows; ++p)
    for (std::int64_t q = 0; q < kModeColumns && q0 + q < s.columns; ++q)
      join_modes(re[p][q], im[p][q], n, s.accumulate,
                 s.out + 2 * (s.out_at.at(p0 + p, q0 + q) * s.modes + m));
}

TENON_INLINE void mode_sums(const ModeSums& s, std::int64_t group_begin, std::int64_t group_end) {
  float* left = s.workspace;
  float* right = left + s.rows * s.terms * kLeftParts * kLanes;
  for (std::int64_t g = group_begin; g < group_end; ++g) {
    const std::int64_t m = g * kModeGroup, rest = s.modes - m, n = rest < kModeGroup ? rest : kModeGroup;
    for (std::int64_t p = 0; p < s.rows; ++p)
      for (std::int64_t r = 0; r < s.terms; ++r) {
        float* a = left + (p * s.terms + r) * kLeftParts * kLanes;
        part_modes(s.left + 2 * (s.left_at.at(p, r) * s.modes + m), n, a, a + kLanes);
        const F im = load(a + kLanes), minus_im = splat(-1.0f) * im;
        store(a + kLanes, s.conjugate_left ? minus_im : im);
        store(a + 2 * kLanes, s.conjugate_left ? im : minus_im);
      }
    for (std::int64_t r = 0; r < s.terms; ++r)
      for (std::int64_t q = 0; q < s.columns; ++q) {
        float* b = right + (q * s.terms + r) * kRightParts * kLanes;
        part_modes(s.right + 2 * (s.right_at.at(r, q) * s.modes + m), n, b, b + kLanes);
        if (s.conjugate_right) store(b + kLanes, splat(-1.0f) * load(b + kLanes));
      }
    for (std::int64_t q = 0; q < s.columns; q += kModeColumns)
      for (std::int64_t p = 0; p < s.rows; p += kModeRows) mode_block(s, left, right, p, q, m, n);
  }
}

std::int64_t mode_product_workspace(const ModeProductArgs<float>& args) {
  const std::int64_t sizes[] = {mode_sums_workspace(args.batch, args.in, args.out),
                                mode_sums_workspace(args.batch, args.out, args.in),
                                mode_sums_workspace(args.in, args.batch, args.out)};
  std::int64_t most = 0;
  for (const std::int64_t size : sizes) most = size > most ? size : most;
  return most;
}

void mode_product_forward(const ModeProductArgs<float>& args, std::int64_t group_begin,
                          std::int64_t group_end) {
  ModeSums s;
  s.rows = args.batch, s.terms = args.in, s.columns = args.out, s.modes = args.modes;
  s.left = args.x, s.left_at = {args.in, 1};
  s.right = args.w, s.right_at = {args.out, 1};
  s.out = args.y, s.out_at = {args.out, 1};
  s.workspace = args.workspace;
  mode_sums(s, group_begin, group_end);
}

void mode_product_backward_input(const ModeProductArgs<float>& args, std::int64_t group_begin,
                                 std::int64_t group_end) {
  ModeSums s;
  s.rows = args.batch, s.terms = args.out, s.columns = args.in, s.modes = args.modes;
  s.left = args.dy, s.left_at = {args.out, 1};
  s.right = args.w, s.right_at = {1, args.out}, s.conjugate_right = true;
  s.out = args.dx, s.out_at = {args.in, 1};
  s.workspace = args.workspace;
  mode_sums(s, group_begin, group_end);
}

void mode_product_backward_weight(const ModeProductArgs<float>& args, std::int64_t group_begin,
                                  std::int64_t group_end) {
  ModeSums s;
  s.rows = args.in, s.terms = args.batch, s.columns = args.out, s.modes = args.modes;
  s.left = args.x, s.left_at = {1, args.in}, s.conjugate_left = true;
  s.right = args.dy, s.right_at = {args.out, 1};
  s.out = args.dw, s.out_at = {args.out, 1}, s.accumulate = args.accumulate_dw;
  s.workspace = args.workspace;
  mode_sums(s, group_begin, group_end);
}

}  // namespace
}  // namespace tenon::kernels
