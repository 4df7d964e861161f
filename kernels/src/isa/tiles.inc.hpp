// Tiles of AMX: products of bfloat16 with sums in float, and the orders of their operands. Compiled with
// TENON_TILES_BY_VECTORS, for tests on processors without tiles, vectors compute the same products.
// A product is C[m, n] (+)= A[m, k] B[k, n], all sizes multiples of 32. A is stored row by row; of B, rows 2
// r and 2 r + 1 are interleaved, as 32-bit pairs: pair[r][j] = (B[2 r][j], B[2 r + 1][j]). Subnormals count
// as zero.
#pragma once

#include <tenon/kernels/types.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

/// Two consecutive bfloat16 values along the k of a product, the first in the low half.
using Pair = std::uint32_t;
typedef std::uint32_t Pairs __attribute__((vector_size(64)));
typedef std::uint16_t Halves __attribute__((vector_size(64)));

constexpr std::int64_t kTileSide = 16;  ///< rows of a tile, and columns of 32 bits
constexpr std::int64_t kTilePack = 32;  ///< sizes of products are multiples of it

template <class V>
TENON_INLINE V load_bits(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class V>
TENON_INLINE void store_bits(void* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

#ifdef TENON_TILES_BY_VECTORS

TENON_INLINE void begin_tiles() {}
TENON_INLINE void end_tiles() {}

void tile_product(std::int64_t m, std::int64_t n, std::int64_t k, const Bf16* a, std::int64_t a_stride,
                  const Pair* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulate) {
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; j += kTileSide) {
      __m512 sum = accumulate ? _mm512_loadu_ps(c + i * c_stride + j) : _mm512_setzero_ps();
      for (std::int64_t r = 0; r < k / 2; ++r) {
        const __m512i left = _mm512_set1_epi32(static_cast<int>(load_bits<Pair>(a + i * a_stride + 2 * r)));
        const __m512i right = _mm512_loadu_si512(b + r * b_stride + j);
        sum = _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
      }
      _mm512_storeu_ps(c + i * c_stride + j, sum);
    }
}

#else

/// Eight tiles of 16 rows of 64 bytes, for this thread from begin_tiles() to end_tiles(). Palette, start row
/// and padding; bytes per row of each of 16 tiles; rows of each.
alignas(64) constexpr std::uint8_t kTileShapes[64] = {
    1,  0, 0,  0, 0,  0,  0,  0,  0,  0,  0,  0,  0, 0, 0, 0, 64, 0, 64, 0, 64, 0,
    64, 0, 64, 0, 64, 0,  64, 0,  64, 0,  0,  0,  0, 0, 0, 0, 0,  0, 0,  0, 0,  0,
    0,  0, 0,  0, 16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0,  0, 0,  0};

TENON_INLINE void begin_tiles() {
  _tile_loadconfig(kTileShapes);
}
TENON_INLINE void end_tiles() {
  _tile_release();
}

/// Strides count elements: of bfloat16 in A, of pairs in B, of float in C.
__attribute__((noinline)) void tile_product(std::int64_t m, std::int64_t n, std::int64_t k, const Bf16* a,
                                            std::int64_t a_stride, const Pair* b, std::int64_t b_stride,
                                            float* c, std::int64_t c_stride, bool accumulate) {
  // Some compilers' tile loads do not declare that they read memory: earlier stores must be done.
  __asm__ volatile("" ::: "memory");
  const std::int64_t a_bytes = a_stride * 2, b_bytes = b_stride * 4, c_bytes = c_stride * 4;
  for (std::int64_t i = 0; i < m; i += 2 * kTileSide)
    for (std::int64_t j = 0; j < n; j += 2 * kTileSide) {
      float* low = c + i * c_stride + j;
      float* high = low + kTileSide * c_stride;
      if (accumulate) {
        _tile_loadd(0, low, c_bytes);
        _tile_loadd(1, low + kTileSide, c_bytes);
        _tile_loadd(2, high, c_bytes);
        _tile_loadd(3, high + kTileSide, c_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      for (std::int64_t l = 0; l < k; l += kTilePack) {
        const Bf16* rows = a + i * a_stride + l;
        const Pair* columns = b + l / 2 * b_stride + j;
        _tile_loadd(4, rows, a_bytes);
        _tile_loadd(5, rows + kTileSide * a_stride, a_bytes);
        _tile_loadd(6, columns, b_bytes);
        _tile_loadd(7, columns + kTileSide, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, low, c_bytes);
      _tile_stored(1, low + kTileSide, c_bytes);
      _tile_stored(2, high, c_bytes);
      _tile_stored(3, high + kTileSide, c_bytes);
    }
}

#endif

/// to[c][r] = from[r][c] for 16 x 16 elements of 32 bits.
TENON_INLINE void transpose_tile(const void* from, std::int64_t from_stride, void* to,
                                 std::int64_t to_stride) {
  const char* in = static_cast<const char*>(from);
  char* out = static_cast<char*>(to);
  Pairs r[16], s[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = load_bits<Pairs>(in + i * from_stride * 4);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {  // rows by pairs
    s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    s[i + 1] =
        __builtin_shufflevector(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4)  // by fours: r[i + c] holds columns c, c + 4, c + 8, c + 12
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      r[i + 2 * c] = __builtin_shufflevector(s[i + c], s[i + 2 + c], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25,
                                             12, 13, 28, 29);
      r[i + 2 * c + 1] = __builtin_shufflevector(s[i + c], s[i + 2 + c], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11,
                                                 26, 27, 14, 15, 30, 31);
    }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const auto even = [](Pairs a, Pairs b) TENON_BODY {
      return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    };
    const auto odd = [](Pairs a, Pairs b) TENON_BODY {
      return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    };
    const Pairs e0 = even(r[c], r[4 + c]), e1 = even(r[8 + c], r[12 + c]);
    const Pairs o0 = odd(r[c], r[4 + c]), o1 = odd(r[8 + c], r[12 + c]);
    store_bits(out + c * to_stride * 4, even(e0, e1));
    store_bits(out + (4 + c) * to_stride * 4, even(o0, o1));
    store_bits(out + (8 + c) * to_stride * 4, odd(e0, e1));
    store_bits(out + (12 + c) * to_stride * 4, odd(o0, o1));
  }
}

/// to[c][r] = from[r][c]; both sizes are multiples of 16, elements have 32 bits, strides count them.
TENON_INLINE void transpose_tiles(const void* from, std::int64_t from_stride, std::int64_t rows,
                                  std::int64_t columns, void* to, std::int64_t to_stride) {
  for (std::int64_t r = 0; r < rows; r += kTileSide)
    for (std::int64_t c = 0; c < columns; c += kTileSide)
      transpose_tile(static_cast<const char*>(from) + (r * from_stride + c) * 4, from_stride,
                     static_cast<char*>(to) + (c * to_stride + r) * 4, to_stride);
}

/// Interleave two lines of 32: low[j] = (a[j], b[j]), high[j] = (a[16 + j], b[16 + j]).
TENON_INLINE Pairs interleave_low(Halves a, Halves b) {
  return (Pairs)__builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40,
                                        9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
}
TENON_INLINE Pairs interleave_high(Halves a, Halves b) {
  return (Pairs)__builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                        24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}

/// pairs[r][j] = (from[2 r][j], from[2 r + 1][j]): [rows, columns] as the second operand of a product.
TENON_INLINE void interleave_rows(const Bf16* from, std::int64_t rows, std::int64_t columns, Pair* pairs) {
  for (std::int64_t r = 0; r < rows; r += 2, from += 2 * columns, pairs += columns)
    for (std::int64_t j = 0; j < columns; j += 32) {
      const Halves a = load_bits<Halves>(from + j), b = load_bits<Halves>(from + columns + j);
      store_bits(pairs + j, interleave_low(a, b));
      store_bits(pairs + j + 16, interleave_high(a, b));
    }
}

/// 32 values rounded to nearest even; a subnormal becomes zero.
TENON_INLINE Halves to_halves(F low, F high) {
  return (Halves)_mm512_cvtne2ps_pbh((__m512)high.v[0], (__m512)low.v[0]);
}

}  // namespace
}  // namespace tenon::kernels
