// Products of small matrices that are in the cache already: no packing, and each caller says which part of
// the sums a block of rows needs. Operands are float, rows of the right one and of the result have whole
// vectors of 16. An element is one chain over k in ascending order, so all fusing sets give the same bits.
#pragma once

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

constexpr int kProductRows = TENON_SIMD_BYTES == 64 ? 12 : TENON_SIMD_BYTES == 32 ? 6 : 4;
constexpr int kProductTail = TENON_SIMD_BYTES == 32 ? 2 : 4;
constexpr int kProductParts = 2;

/// The left operand: element (i, k) is data[i row + k col]. Rows up to a multiple of 4 are read.
struct Left {
  const float* data;
  std::int64_t row, col;
};
/// The factor of row i's old result is scale[i step]; scale null: the sum begins at zero.
struct Begin {
  const float* scale = nullptr;
  std::int64_t step = 0;
};
constexpr float kOne = 1.0f;
constexpr Begin kFromZero = {}, kOntoResult = {&kOne, 0};

/// Links [begin, end) of the chains of some rows, and their columns [0, columns).
struct Reach {
  std::int64_t begin, end, columns;
};

/// c[rows, parts] = begin(c) + A B over links [k_begin, k_end).
struct ProductTile {
  const float* a = nullptr;
  std::int64_t a_row = 0, a_col = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0, k_begin = 0, k_end = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
  const float* scale = nullptr;  ///< as of Begin
  std::int64_t scale_step = 0;
};
/// Out of line: alone, its sums all stay in registers.
template <int rows, int parts>
[[gnu::noinline]] void product_tile(const ProductTile& t) {
  Part sum[rows][parts];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p)
      sum[i][p] = t.scale == nullptr
                      ? Part{}
                      : load_part(t.c + i * t.ldc + p * kPartLanes) * (t.scale[i * t.scale_step] - Part{});
  for (std::int64_t k = t.k_begin; k < t.k_end; ++k) {
    Part right[parts];
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p) right[p] = load_part(t.b + k * t.ldb + p * kPartLanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const Part x = t.a[i * t.a_row + k * t.a_col] - Part{};
#pragma GCC unroll 4
      for (int p = 0; p < parts; ++p) sum[i][p] = mul_add_part(x, right[p], sum[i][p]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p) store_part(t.c + i * t.ldc + p * kPartLanes, sum[i][p]);
}

template <int rows, class Shape>
TENON_INLINE void product_rows(std::int64_t i, std::int64_t j, std::int64_t n, Left a, const float* b,
                               std::int64_t ldb, float* c, std::int64_t ldc, Begin from, Shape shape) {
  const Reach reach = shape(i, rows);
  if (j >= reach.columns) return;
  ProductTile t;
  t.a = a.data + i * a.row, t.a_row = a.row, t.a_col = a.col;
  t.b = b + j, t.ldb = ldb, t.k_begin = reach.begin, t.k_end = reach.end;
  t.c = c + i * ldc + j, t.ldc = ldc;
  if (from.scale != nullptr) t.scale = from.scale + i * from.step;
  t.scale_step = from.step;
  if (n - j >= kProductParts * kPartLanes)
    product_tile<rows, kProductParts>(t);
  else
    product_tile<rows, 1>(t);
}

/// c[m, n] = begin(c) + A B, of the parts that shape(first row, rows) names. n is a multiple of 16; rows of c
/// up to a multiple of 4 are written.
template <class Shape>
TENON_INLINE void small_product(std::int64_t m, std::int64_t n, Left a, const float* b, std::int64_t ldb,
                                float* c, std::int64_t ldc, Begin from, Shape shape) {
  for (std::int64_t j = 0; j < n; j += kProductParts * kPartLanes) {
    std::int64_t i = 0;
    for (; i + kProductRows <= m; i += kProductRows)
      product_rows<kProductRows>(i, j, n, a, b, ldb, c, ldc, from, shape);
    for (; i < m; i += kProductTail) product_rows<kProductTail>(i, j, n, a, b, ldb, c, ldc, from, shape);
  }
}

}  // namespace
}  // namespace tenon::kernels
