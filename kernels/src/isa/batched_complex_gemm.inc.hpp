// Products of complex matrices per mode (contract: gemm.hpp). A group of 16 modes is
// extracted from all operands into separate real and imaginary parts, conjugated and negated there, so that
// the product itself is only fused multiply-adds of vectors in registers. Terms have the order of the
// reference.
#pragma once

#include <tenon/kernels/gemm.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

/// Rows and columns of the result whose sums are in registers at once.
constexpr std::int64_t kModeRows = 2, kModeColumns = TENON_SIMD_BYTES == 64 ? 4 : 2;
/// Vectors of an element: left operands hold re, im, -im, right ones re, im.
constexpr std::int64_t kLeftParts = 3, kRightParts = 2;

/// Strides of the rows and columns of an operand, in elements.
struct ModeMatrix {
  std::int64_t row = 0, column = 0;
  TENON_INLINE std::int64_t at(std::int64_t i, std::int64_t j) const { return i * row + j * column; }
};

/// Lanes that one register selects from the concatenation of two.
#if TENON_SIMD_BYTES == 64
#define TENON_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define TENON_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define TENON_FIRST 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define TENON_SECOND 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif TENON_SIMD_BYTES == 32
#define TENON_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define TENON_ODD 1, 3, 5, 7, 9, 11, 13, 15
#define TENON_FIRST 0, 8, 1, 9, 2, 10, 3, 11
#define TENON_SECOND 4, 12, 5, 13, 6, 14, 7, 15
#else
#define TENON_EVEN 0, 2, 4, 6
#define TENON_ODD 1, 3, 5, 7
#define TENON_FIRST 0, 4, 1, 5
#define TENON_SECOND 2, 6, 3, 7
#endif

/// Separates real and imaginary parts of 16 neighbours, and joins them.
TENON_INLINE void part_pairs(const float* from, F& re, F& im) {
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p) {
    const Part low = load_part(from + 2 * p * kPartLanes), high = load_part(from + (2 * p + 1) * kPartLanes);
    re.v[p] = __builtin_shufflevector(low, high, TENON_EVEN);
    im.v[p] = __builtin_shufflevector(low, high, TENON_ODD);
  }
}
TENON_INLINE void join_pairs(F re, F im, bool accumulate, float* to) {
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p) {
    Part low = __builtin_shufflevector(re.v[p], im.v[p], TENON_FIRST);
    Part high = __builtin_shufflevector(re.v[p], im.v[p], TENON_SECOND);
    float* at = to + 2 * p * kPartLanes;
    if (accumulate) {
      low = load_part(at) + low;
      high = load_part(at + kPartLanes) + high;
    }
    store_part(at, low);
    store_part(at + kPartLanes, high);
  }
}
#undef TENON_EVEN
#undef TENON_ODD
#undef TENON_FIRST
#undef TENON_SECOND

/// Modes [m, m + n) of the element at `from`, followed by zeros. Prefetches the next group: elements are too
/// far apart for the processor's prefetcher.
TENON_INLINE void part_modes(const float* from, std::int64_t n, F& re, F& im) {
  __builtin_prefetch(from + 2 * kLanes);
  __builtin_prefetch(from + 3 * kLanes);
  if (n == kLanes) return part_pairs(from, re, im);
  float pairs[2 * kLanes] = {};
  __builtin_memcpy(pairs, from, (2 * n) * sizeof(float));
  part_pairs(pairs, re, im);
}

TENON_INLINE void join_modes(F re, F im, std::int64_t n, bool accumulate, float* to) {
  if (n == kLanes) return join_pairs(re, im, accumulate, to);
  float pairs[2 * kLanes];
  join_pairs(re, im, false, pairs);
  for (std::int64_t l = 0; l < 2 * n; ++l) to[l] = accumulate ? to[l] + pairs[l] : pairs[l];
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

/// One part of the lanes of a block's sums: all of them are in registers.
struct ModeParts {
  Part re[kModeRows][kModeColumns], im[kModeRows][kModeColumns];
};
TENON_INLINE void mode_parts(std::int64_t terms, const float* const (&rows)[kModeRows],
                             const float* const (&columns)[kModeColumns], std::int64_t lane,
                             ModeParts& sums) {
  Part re[kModeRows][kModeColumns], im[kModeRows][kModeColumns];
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < kModeRows; ++p)
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < kModeColumns; ++q) re[p][q] = im[p][q] = Part{};
  for (std::int64_t r = 0; r < terms; ++r) {
    Part b_re[kModeColumns], b_im[kModeColumns];
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < kModeColumns; ++q) {
      const float* b = columns[q] + r * kRightParts * kLanes + lane;
      b_re[q] = load_part(b), b_im[q] = load_part(b + kLanes);
    }
#pragma GCC unroll 4
    for (std::int64_t p = 0; p < kModeRows; ++p) {
      const float* a = rows[p] + r * kLeftParts * kLanes + lane;
      const Part a_re = load_part(a), a_im = load_part(a + kLanes), minus_a_im = load_part(a + 2 * kLanes);
#pragma GCC unroll 4
      for (std::int64_t q = 0; q < kModeColumns; ++q) {
        re[p][q] = mul_add_part(minus_a_im, b_im[q], mul_add_part(a_re, b_re[q], re[p][q]));
        im[p][q] = mul_add_part(a_im, b_re[q], mul_add_part(a_re, b_im[q], im[p][q]));
      }
    }
  }
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < kModeRows; ++p)
#pragma GCC unroll 4
    for (std::int64_t q = 0; q < kModeColumns; ++q) sums.re[p][q] = re[p][q], sums.im[p][q] = im[p][q];
}

/// Sums of rows p0, p0 + 1 and columns q0 ...; those after the last repeat it and are not stored.
TENON_INLINE void mode_block(const ModeSums& s, const float* left, const float* right, std::int64_t p0,
                             std::int64_t q0, std::int64_t m, std::int64_t n) {
  const float* rows[kModeRows];
  const float* columns[kModeColumns];
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < kModeRows; ++p)
    rows[p] = left + (p0 + p < s.rows ? p0 + p : s.rows - 1) * s.terms * kLeftParts * kLanes;
#pragma GCC unroll 4
  for (std::int64_t q = 0; q < kModeColumns; ++q)
    columns[q] = right + (q0 + q < s.columns ? q0 + q : s.columns - 1) * s.terms * kRightParts * kLanes;
  ModeParts sums[kParts];
  for (std::int64_t part = 0; part < kParts; ++part)
    mode_parts(s.terms, rows, columns, part * kPartLanes, sums[part]);
  for (std::int64_t p = 0; p < kModeRows && p0 + p < s.rows; ++p)
    for (std::int64_t q = 0; q < kModeColumns && q0 + q < s.columns; ++q) {
      F re, im;
#pragma GCC unroll 4
      for (std::int64_t part = 0; part < kParts; ++part)
        re.v[part] = sums[part].re[p][q], im.v[part] = sums[part].im[p][q];
      join_modes(re, im, n, s.accumulate, s.out + 2 * (s.out_at.at(p0 + p, q0 + q) * s.modes + m));
    }
}

TENON_INLINE void mode_sums(const ModeSums& s, std::int64_t group_begin, std::int64_t group_end) {
  float* left = s.workspace;
  float* right = left + s.rows * s.terms * kLeftParts * kLanes;
  for (std::int64_t g = group_begin; g < group_end; ++g) {
    const std::int64_t m = g * kModeGroup, rest = s.modes - m, n = rest < kModeGroup ? rest : kModeGroup;
    for (std::int64_t p = 0; p < s.rows; ++p)
      for (std::int64_t r = 0; r < s.terms; ++r) {
        float* a = left + (p * s.terms + r) * kLeftParts * kLanes;
        F re, im;
        part_modes(s.left + 2 * (s.left_at.at(p, r) * s.modes + m), n, re, im);
        const F minus_im = splat(-1.0f) * im;
        store(a, re);
        store(a + kLanes, s.conjugate_left ? minus_im : im);
        store(a + 2 * kLanes, s.conjugate_left ? im : minus_im);
      }
    for (std::int64_t r = 0; r < s.terms; ++r)
      for (std::int64_t q = 0; q < s.columns; ++q) {
        float* b = right + (q * s.terms + r) * kRightParts * kLanes;
        F re, im;
        part_modes(s.right + 2 * (s.right_at.at(r, q) * s.modes + m), n, re, im);
        store(b, re);
        store(b + kLanes, s.conjugate_right ? splat(-1.0f) * im : im);
      }
    for (std::int64_t q = 0; q < s.columns; q += kModeColumns)
      for (std::int64_t p = 0; p < s.rows; p += kModeRows) mode_block(s, left, right, p, q, m, n);
  }
}

std::int64_t batched_complex_gemm_workspace(const BatchedComplexGemmArgs<float>& args) {
  const std::int64_t sizes[] = {mode_sums_workspace(args.batch, args.in, args.out),
                                mode_sums_workspace(args.batch, args.out, args.in),
                                mode_sums_workspace(args.in, args.batch, args.out)};
  std::int64_t most = 0;
  for (const std::int64_t size : sizes) most = size > most ? size : most;
  return most;
}

void batched_complex_gemm_forward(const BatchedComplexGemmArgs<float>& args, std::int64_t group_begin,
                                  std::int64_t group_end) {
  ModeSums s;
  s.rows = args.batch, s.terms = args.in, s.columns = args.out, s.modes = args.modes;
  s.left = args.x, s.left_at = {args.in, 1};
  s.right = args.w, s.right_at = {args.out, 1};
  s.out = args.y, s.out_at = {args.out, 1};
  s.workspace = args.workspace;
  mode_sums(s, group_begin, group_end);
}

void batched_complex_gemm_backward_input(const BatchedComplexGemmArgs<float>& args, std::int64_t group_begin,
                                         std::int64_t group_end) {
  ModeSums s;
  s.rows = args.batch, s.terms = args.out, s.columns = args.in, s.modes = args.modes;
  s.left = args.dy, s.left_at = {args.out, 1};
  s.right = args.w, s.right_at = {1, args.out}, s.conjugate_right = true;
  s.out = args.dx, s.out_at = {args.in, 1};
  s.workspace = args.workspace;
  mode_sums(s, group_begin, group_end);
}

void batched_complex_gemm_backward_weight(const BatchedComplexGemmArgs<float>& args, std::int64_t group_begin,
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
