// Matrix product on packed panels (contract and order of arithmetic: gemm.hpp).
// A block of kRowBlock x kTileCols sums is kept in float from k = 0 to the end, so blocking over k does not
// change the chain. B is packed per panel; A is read in place when it is float, else converted per tile.
// Scratch is on the stack (about 60 KiB).
#pragma once

#include <tenon/kernels/gemm.hpp>

#include "isa/simd.inc.hpp"
#include "isa/transpose.inc.hpp"

namespace tenon::kernels {
namespace {

constexpr int kTileRows = TENON_SIMD_BYTES == 64 ? 12 : TENON_SIMD_BYTES == 32 ? 6 : 4;
constexpr int kTileParts = 2;
constexpr int kTileCols = kTileParts * kPartLanes;
constexpr std::int64_t kRowBlock = 96;
constexpr std::int64_t kDepthBlock = 256;
static_assert(kRowBlock % kTileRows == 0);

/// A matrix seen through two strides, so that transposition is a swap.
template <class S>
struct Strided {
  const S* data;
  std::int64_t row, col;
  const S* at(std::int64_t i, std::int64_t j) const { return data + i * row + j * col; }
};

/// acc += A B over `depth` links of the chain.
TENON_INLINE void gemm_links(std::int64_t depth, Strided<float> a, const float* packed_b,
                             Part (&acc)[kTileRows][kTileParts]) {
  for (std::int64_t k = 0; k < depth; ++k) {
    Part b[kTileParts];
#pragma GCC unroll 4
    for (int p = 0; p < kTileParts; ++p) b[p] = load_part(packed_b + k * kTileCols + p * kPartLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const Part x = *a.at(i, k) - Part{};
#pragma GCC unroll 4
      for (int p = 0; p < kTileParts; ++p) acc[i][p] = mul_add_part(x, b[p], acc[i][p]);
    }
  }
}

/// sums[kTileRows, kTileCols] += A B over `depth` links of the chain. Out of line: alone, its sums all stay
/// in registers.
[[maybe_unused, gnu::noinline]] void gemm_tile(std::int64_t depth, Strided<float> a, const float* packed_b,
                                               float* sums) {
  Part acc[kTileRows][kTileParts];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < kTileParts; ++p) acc[i][p] = load_part(sums + i * kTileCols + p * kPartLanes);
  gemm_links(depth, a, packed_b, acc);
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < kTileParts; ++p) store_part(sums + i * kTileCols + p * kPartLanes, acc[i][p]);
}

/// c[kTileRows, columns] = A B where `depth` links are the whole chain, so no sums are kept between.
[[maybe_unused, gnu::noinline]] void gemm_whole_tile(std::int64_t depth, Strided<float> a,
                                                     const float* packed_b, float* c, std::int64_t row,
                                                     std::int64_t columns) {
  Part acc[kTileRows][kTileParts];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < kTileParts; ++p) acc[i][p] = Part{};
  gemm_links(depth, a, packed_b, acc);
#pragma GCC unroll 4
  for (int p = 0; p < kTileParts; ++p) {
    const std::int64_t left = columns - p * kPartLanes;
    if (left >= kPartLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) store_part(c + i * row + p * kPartLanes, acc[i][p]);
    } else if (left > 0) {
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) store_part_first(c + i * row + p * kPartLanes, acc[i][p], left);
    }
  }
}

/// packed[depth, kTileCols] = b[depth, cols], zeros after cols.
template <class S>
void pack_columns(Strided<S> b, std::int64_t depth, std::int64_t cols, float* packed) {
  if (b.col == 1) {
    for (std::int64_t k = 0; k < depth; ++k, packed += kTileCols) {
      const S* row = b.at(k, 0);
      if (cols == kTileCols) {
        for (int j = 0; j < kTileCols; ++j) packed[j] = load_one(row + j);
        continue;
      }
      for (std::int64_t j = 0; j < cols; ++j) packed[j] = load_one(row + j);
      for (std::int64_t j = cols; j < kTileCols; ++j) packed[j] = 0.0f;
    }
    return;
  }
  std::int64_t done = 0;
  if constexpr (sizeof(S) == sizeof(float)) {
    if (cols == kTileCols && b.row == 1)
      for (; done + 4 <= depth; done += 4)
        for (int j = 0; j < kTileCols; j += 4)
          transpose_quads(b.at(done, j), b.col, [&](std::int64_t k, Quad values) TENON_BODY {
            store_quad(packed + (done + k) * kTileCols + j, values);
          });
  }
  for (std::int64_t k = done; k < depth; ++k)
    for (int j = 0; j < kTileCols; ++j) packed[k * kTileCols + j] = j < cols ? load_one(b.at(k, j)) : 0.0f;
}

/// packed[kTileRows, kDepthBlock] = a[rows, depth], zeros below rows.
template <class S>
void pack_rows(Strided<S> a, std::int64_t rows, std::int64_t depth, float* packed) {
  for (std::int64_t i = 0; i < kTileRows; ++i)
    for (std::int64_t k = 0; k < depth; ++k)
      packed[i * kDepthBlock + k] = i < rows ? load_one(a.at(i, k)) : 0.0f;
}

/// C = A B where the chain is one block long, for whole tiles of rows from the first one on; returns how many
/// rows that are.
TENON_INLINE std::int64_t gemm_whole_tiles(std::int64_t m, std::int64_t n, std::int64_t k, Strided<float> a,
                                           Strided<float> b, float* c, std::int64_t ldc) {
  alignas(64) float packed_b[kDepthBlock * kTileCols];
  const std::int64_t all = m / kTileRows * kTileRows;
  for (std::int64_t i0 = 0; i0 < all; i0 += kRowBlock) {
    const std::int64_t end = all - i0 < kRowBlock ? all : i0 + kRowBlock;
    for (std::int64_t j = 0; j < n; j += kTileCols) {
      const std::int64_t columns = n - j < kTileCols ? n - j : kTileCols;
      pack_columns(Strided<float>{b.at(0, j), b.row, b.col}, k, columns, packed_b);
      for (std::int64_t i = i0; i < end; i += kTileRows)
        gemm_whole_tile(k, {a.at(i, 0), a.row, a.col}, packed_b, c + i * ldc + j, ldc, columns);
    }
  }
  return all;
}

/// Calls finish(row, first column, count, sums of that row) for every row of every panel of A B.
template <class S, class Finish>
TENON_INLINE void gemm_panels(std::int64_t m, std::int64_t n, std::int64_t k, Strided<S> a, Strided<S> b,
                              Finish finish) {
  alignas(64) float packed_b[kDepthBlock * kTileCols];
  alignas(64) float packed_a[kTileRows * kDepthBlock];
  alignas(64) float sums[kRowBlock * kTileCols];
  for (std::int64_t i0 = 0; i0 < m; i0 += kRowBlock) {
    const std::int64_t rows = m - i0 < kRowBlock ? m - i0 : kRowBlock;
    for (std::int64_t j0 = 0; j0 < n; j0 += kTileCols) {
      const std::int64_t cols = n - j0 < kTileCols ? n - j0 : kTileCols;
      __builtin_memset(sums, 0, sizeof sums);
      for (std::int64_t k0 = 0; k0 < k; k0 += kDepthBlock) {
        const std::int64_t depth = k - k0 < kDepthBlock ? k - k0 : kDepthBlock;
        pack_columns(Strided<S>{b.at(k0, j0), b.row, b.col}, depth, cols, packed_b);
        for (std::int64_t i = 0; i < rows; i += kTileRows) {
          const Strided<S> block{a.at(i0 + i, k0), a.row, a.col};
          Strided<float> tile{packed_a, kDepthBlock, 1};
          bool in_place = false;
          if constexpr (sizeof(S) == sizeof(float)) {
            in_place = i + kTileRows <= rows;
            if (in_place) tile = block;
          }
          if (!in_place) pack_rows(block, rows - i, depth, packed_a);
          gemm_tile(depth, tile, packed_b, sums + i * kTileCols);
        }
      }
      for (std::int64_t i = 0; i < rows; ++i) finish(i0 + i, j0, cols, sums + i * kTileCols);
    }
  }
}

template <class S, class C>
void gemm(const GemmArgs<S, C>& args) {
  for (std::int64_t product = 0; product < args.batch; ++product) {
    Strided<S> a{args.a + product * args.stride_a, args.lda, 1};
    Strided<S> b{args.b + product * args.stride_b, args.ldb, 1};
    if (args.transpose_a) a = {a.data, 1, args.lda};
    if (args.transpose_b) b = {b.data, 1, args.ldb};
    C* c = args.c + product * args.stride_c;
    const float alpha = args.alpha, beta = args.beta;
    std::int64_t done = 0;
    if constexpr (sizeof(S) == sizeof(float) && sizeof(C) == sizeof(float))
      if (alpha == 1.0f && beta == 0.0f && args.k <= kDepthBlock)
        done = gemm_whole_tiles(args.m, args.n, args.k, a, b, c, args.ldc);
    a.data = a.at(done, 0), c += done * args.ldc;
    gemm_panels(args.m - done, args.n, args.k, a, b,
                [&](std::int64_t i, std::int64_t j, std::int64_t cols, const float* sums) TENON_BODY {
                  C* row = c + i * args.ldc + j;
                  for_lanes(0, cols, [&](std::int64_t l, std::int64_t count) TENON_BODY {
                    F r = splat(alpha) * load_group(sums + l, count);
                    if (beta != 0.0f) r = r + splat(beta) * load_group(row + l, count);
                    store_group(row + l, r, count);
                  });
                });
  }
}

}  // namespace
}  // namespace tenon::kernels
