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

/// c[rows, parts] = begin(c) + A B. Out of line: alone, its sums all stay in registers.
template <int rows, int parts>
[[gnu::noinline]] void product_tile(Left a, const float* b, std::int64_t ldb, std::int64_t k_begin,
                                    std::int64_t k_end, float* c, std::int64_t ldc, Begin from) {
  Part sum[rows][parts];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p)
      sum[i][p] = from.scale == nullptr
                      ? Part{}
                      : load_part(c + i * ldc + p * kPartLanes) * (from.scale[i * from.step] - Part{});
  for (std::int64_t k = k_begin; k < k_end; ++k) {
    Part right[parts];
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p) right[p] = load_part(b + k * ldb + p * kPartLanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const Part x = a.data[i * a.row + k * a.col] - Part{};
#pragma GCC unroll 4
      for (int p = 0; p < parts; ++p) sum[i][p] = mul_add_part(x, right[p], sum[i][p]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p) store_part(c + i * ldc + p * kPartLanes, sum[i][p]);
}

template <int rows, class Shape>
TENON_INLINE void product_rows(std::int64_t i, std::int64_t j, std::int64_t n, Left a, const float* b,
                               std::int64_t ldb, float* c, std::int64_t ldc, Begin from, Shape shape) {
  const Reach reach = shape(i, rows);
  if (j >= reach.columns) return;
  const Left tile{a.data + i * a.row, a.row, a.col};
  const Begin begin{from.scale == nullptr ? nullptr : from.scale + i * from.step, from.step};
  float* result = c + i * ldc + j;
  if (n - j >= kProductParts * kPartLanes)
    product_tile<rows, kProductParts>(tile, b + j, ldb, reach.begin, reach.end, result, ldc, begin);
  else
    product_tile<rows, 1>(tile, b + j, ldb, reach.begin, reach.end, result, ldc, begin);
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
