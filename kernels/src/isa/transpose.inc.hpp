// Transposition of a matrix in tiles that stay in registers.
#pragma once

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

TENON_INLINE Quad load_quad(const float* p) {
  Quad r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
TENON_INLINE void store_quad(float* p, Quad a) {
  __builtin_memcpy(p, &a, sizeof a);
}

/// Calls put(r, columns) with row r of the transposed 4 x 4 elements whose rows are `stride` apart.
template <class Put>
TENON_INLINE void transpose_quads(const float* from, std::int64_t stride, Put put) {
  const Quad a = load_quad(from), b = load_quad(from + stride), c = load_quad(from + 2 * stride),
             d = load_quad(from + 3 * stride);
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
             ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7),
             cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
             cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  put(0, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
  put(1, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
  put(2, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
  put(3, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

constexpr std::int64_t kQuad = 4, kTile = 16;

/// Calls quads(r, c) and ones(r, c) so that they cover rows x columns, four by four where there are four. Of
/// the side whose lines are far apart, the rows, four at a time are in use; the other side's stay in the
/// first cache for a tile. No processor prefetches so many lines, hence next(r, c): the continuation of row
/// r.
template <class Next, class Quads, class Ones>
TENON_INLINE void for_tiles(std::int64_t rows, std::int64_t columns, Next next, Quads quads, Ones ones) {
  for (std::int64_t begin = 0; begin < columns; begin += kTile) {
    const std::int64_t end = begin + kTile < columns ? begin + kTile : columns;
    for (std::int64_t r = 0; r < rows; r += kQuad) {
      std::int64_t c = begin;
      for (std::int64_t i = r; end < columns && i < rows && i < r + kQuad; ++i) next(i, end);
      if (r + kQuad <= rows)
        for (; c + kQuad <= end; c += kQuad) quads(r, c);
      for (; c < end; ++c)
        for (std::int64_t i = r; i < rows && i < r + kQuad; ++i) ones(i, c);
    }
  }
}

/// to[c to_stride + r] = from[r from_stride + c]; to_stride is about the number of rows.
TENON_INLINE void transpose(const float* from, std::int64_t from_stride, std::int64_t rows,
                            std::int64_t columns, float* to, std::int64_t to_stride) {
  const auto next = [&](std::int64_t r, std::int64_t c)
                        TENON_BODY { __builtin_prefetch(from + r * from_stride + c); };
  for_tiles(
      rows, columns, next,
      [&](std::int64_t r, std::int64_t c) TENON_BODY {
        transpose_quads(from + r * from_stride + c, from_stride, [&](std::int64_t i, Quad values) TENON_BODY {
          store_quad(to + (c + i) * to_stride + r, values);
        });
      },
      [&](std::int64_t r, std::int64_t c) TENON_BODY { to[c * to_stride + r] = from[r * from_stride + c]; });
}
TENON_INLINE void transpose(const Bf16* from, std::int64_t from_stride, std::int64_t rows,
                            std::int64_t columns, Bf16* to, std::int64_t to_stride) {
  const auto next = [&](std::int64_t r, std::int64_t c)
                        TENON_BODY { __builtin_prefetch(from + r * from_stride + c); };
  const auto one = [&](std::int64_t r, std::int64_t c)
                       TENON_BODY { to[c * to_stride + r] = from[r * from_stride + c]; };
  for_tiles(
      rows, columns, next,
      [&](std::int64_t r, std::int64_t c) TENON_BODY {
        for (std::int64_t i = 0; i < kQuad * kQuad; ++i) one(r + i % kQuad, c + i / kQuad);
      },
      one);
}

/// to[r columns + c] (+)= 0 + from[c from_stride + r]: sums of one term, as sums of more begin.
template <class S>
TENON_INLINE void transpose_sums(const S* from, std::int64_t from_stride, std::int64_t rows,
                                 std::int64_t columns, S* to, bool accumulate) {
  const auto next = [&](std::int64_t r, std::int64_t c)
                        TENON_BODY { __builtin_prefetch(to + r * columns + c, 1); };
  const auto one = [&](std::int64_t r, std::int64_t c) TENON_BODY {
    const float sum = 0.0f + load_one(from + c * from_stride + r);
    S* element = to + r * columns + c;
    store_one(element, accumulate ? load_one(element) + sum : sum);
  };
  for_tiles(
      rows, columns, next,
      [&](std::int64_t r, std::int64_t c) TENON_BODY {
        if constexpr (sizeof(S) == sizeof(float)) {
          transpose_quads(from + c * from_stride + r, from_stride,
                          [&](std::int64_t i, Quad values) TENON_BODY {
                            float* line = to + (r + i) * columns + c;
                            const Quad sums = Quad{} + values;
                            store_quad(line, accumulate ? load_quad(line) + sums : sums);
                          });
        } else {
          for (std::int64_t i = 0; i < kQuad * kQuad; ++i) one(r + i / kQuad, c + i % kQuad);
        }
      },
      one);
}

}  // namespace
}  // namespace tenon::kernels
