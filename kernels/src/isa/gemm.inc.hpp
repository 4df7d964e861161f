// Matrix product on packed panels (contract and order of arithmetic: gemm.hpp).
// A block of kRowBlock x kTileCols sums is kept in float from k = 0 to the end, so blocking over k does not
// change the chain. Where one block holds the whole chain, tiles write their results themselves. B is packed
// per panel, unless it is in the first cache as it is; A is read in place when it is float, else converted
// per tile. Scratch is on the stack (about 60 KiB).
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

/// acc += A B over `depth` links of the chain; rows of B are b_row apart.
template <int rows, int parts>
TENON_INLINE void gemm_links(std::int64_t depth, Strided<float> a, const float* b, std::int64_t b_row,
                             Part (&acc)[rows][parts]) {
  for (std::int64_t k = 0; k < depth; ++k) {
    Part right[parts];
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p) right[p] = load_part(b + k * b_row + p * kPartLanes);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const Part x = *a.at(i, k) - Part{};
#pragma GCC unroll 4
      for (int p = 0; p < parts; ++p) acc[i][p] = mul_add_part(x, right[p], acc[i][p]);
    }
  }
}

/// sums[kTileRows, kTileCols] += A B over `depth` links of the chain. Out of line: alone, its sums all stay
/// in registers. Strides are apart: a copy of a structure on the stack waits for all stores before it.
[[maybe_unused, gnu::noinline]] void gemm_tile(std::int64_t depth, const float* a, std::int64_t a_row,
                                               std::int64_t a_col, const float* packed_b, float* sums) {
  Part acc[kTileRows][kTileParts];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < kTileParts; ++p) acc[i][p] = load_part(sums + i * kTileCols + p * kPartLanes);
  gemm_links<kTileRows, kTileParts>(depth, {a, a_row, a_col}, packed_b, kTileCols, acc);
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < kTileParts; ++p) store_part(sums + i * kTileCols + p * kPartLanes, acc[i][p]);
}

/// C[rows, columns] (+)= A B where `depth` links are the whole chain, so no sums are kept between.
struct WholeTile {
  std::int64_t depth = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, a_col = 0;
  const float* b = nullptr;
  std::int64_t b_row = 0;
  float* c = nullptr;
  std::int64_t c_row = 0, columns = 0;
  bool add = false;
};
template <int rows, int parts>
[[maybe_unused, gnu::noinline]] void gemm_whole_tile(const WholeTile& t) {
  Part acc[rows][parts];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p) acc[i][p] = Part{};
  gemm_links<rows, parts>(t.depth, {t.a, t.a_row, t.a_col}, t.b, t.b_row, acc);
#pragma GCC unroll 4
  for (int p = 0; p < parts; ++p) {
    const std::int64_t left = t.columns - p * kPartLanes;
    float* const c = t.c + p * kPartLanes;
    if (left >= kPartLanes) {
      if (t.add) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) acc[i][p] = acc[i][p] + load_part(c + i * t.c_row);
      }
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) store_part(c + i * t.c_row, acc[i][p]);
    } else if (left > 0) {
      if (t.add) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) acc[i][p] = acc[i][p] + load_part_first(c + i * t.c_row, left);
      }
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) store_part_first(c + i * t.c_row, acc[i][p], left);
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

/// The tile that begins with row i of m, or that ends with row m where fewer are left: that one writes some
/// rows again, the same, so it must not add.
struct TileRows {
  std::int64_t first = 0, rows = 0;  ///< rows: 0 where no tile fits
};
constexpr int kShortTile = 4;
TENON_INLINE TileRows tile_rows(std::int64_t i, std::int64_t m, bool add) {
  const std::int64_t left = m - i;
  if (left >= kTileRows) return {i, kTileRows};
  if (left > kShortTile && m >= kTileRows && !add) return {m - kTileRows, kTileRows};
  if (left >= kShortTile) return {i, kShortTile};
  return add || m < kShortTile ? TileRows{} : TileRows{m - kShortTile, kShortTile};
}

/// C (+)= A B where the chain is one block long, for tiles of rows from the first one on; returns how many
/// rows those are.
TENON_INLINE std::int64_t gemm_whole_tiles(std::int64_t m, std::int64_t n, std::int64_t k, Strided<float> a,
                                           Strided<float> b, float* c, std::int64_t ldc, bool add) {
  alignas(64) float packed[kDepthBlock * kTileCols];
  const bool near =
      b.col == 1 && k * b.row <= kDepthBlock * kTileCols;  // B as it is stays in the first cache
  std::int64_t done = 0;
  for (std::int64_t i0 = 0; i0 < m; i0 += kRowBlock)
    for (std::int64_t j = 0; j < n; j += kTileCols) {
      const std::int64_t columns = n - j < kTileCols ? n - j : kTileCols;
      const bool half = columns <= kPartLanes, in_place = near && columns == (half ? kPartLanes : kTileCols);
      if (!in_place) pack_columns(Strided<float>{b.at(0, j), b.row, b.col}, k, columns, packed);
      WholeTile t;
      t.depth = k, t.a_row = a.row, t.a_col = a.col;
      t.b = in_place ? b.at(0, j) : packed, t.b_row = in_place ? b.row : kTileCols;
      t.c_row = ldc, t.columns = columns, t.add = add;
      const std::int64_t end = m - i0 < kRowBlock ? m : i0 + kRowBlock;
      for (done = i0; done < end;) {
        const TileRows tile = tile_rows(done, m, add);
        if (tile.rows == 0) break;
        t.a = a.at(tile.first, 0), t.c = c + tile.first * ldc + j;
        if (tile.rows == kTileRows)
          half ? gemm_whole_tile<kTileRows, 1>(t) : gemm_whole_tile<kTileRows, kTileParts>(t);
        else
          half ? gemm_whole_tile<kShortTile, 1>(t) : gemm_whole_tile<kShortTile, kTileParts>(t);
        done = tile.first + tile.rows;
      }
    }
  return done;
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
      __builtin_memset(sums, 0, (rows + kTileRows - 1) / kTileRows * kTileRows * kTileCols * sizeof(float));
      for (std::int64_t k0 = 0; k0 < k; k0 += kDepthBlock) {
        const std::int64_t depth = k - k0 < kDepthBlock ? k - k0 : kDepthBlock;
        pack_columns(Strided<S>{b.at(k0, j0), b.row, b.col}, depth, cols, packed_b);
        for (std::int64_t i = 0; i < rows; i += kTileRows) {
          const S* const block = a.at(i0 + i, k0);
          if constexpr (sizeof(S) == sizeof(float)) {
            if (i + kTileRows <= rows) {
              gemm_tile(depth, block, a.row, a.col, packed_b, sums + i * kTileCols);
              continue;
            }
          }
          pack_rows(Strided<S>{block, a.row, a.col}, rows - i, depth, packed_a);
          gemm_tile(depth, packed_a, kDepthBlock, 1, packed_b, sums + i * kTileCols);
        }
      }
      for (std::int64_t i = 0; i < rows; ++i) finish(i0 + i, j0, cols, sums + i * kTileCols);
    }
  }
}

/// C = alpha A B + beta C.
template <class S, class C>
TENON_INLINE void strided_product(std::int64_t m, std::int64_t n, std::int64_t k, Strided<S> a, Strided<S> b,
                                  C* c, std::int64_t ldc, float alpha, float beta) {
  if constexpr (sizeof(S) == sizeof(float) && sizeof(C) == sizeof(float))
    if (alpha == 1.0f && (beta == 0.0f || beta == 1.0f) && k <= kDepthBlock) {
      const std::int64_t done = gemm_whole_tiles(m, n, k, a, b, c, ldc, beta != 0.0f);
      a.data = a.at(done, 0), c += done * ldc, m -= done;
    }
  gemm_panels(m, n, k, a, b,
              [&](std::int64_t i, std::int64_t j, std::int64_t cols, const float* sums) TENON_BODY {
                C* row = c + i * ldc + j;
                for_lanes(0, cols, [&](std::int64_t l, std::int64_t count) TENON_BODY {
                  F r = splat(alpha) * load_group(sums + l, count);
                  if (beta != 0.0f) r = r + splat(beta) * load_group(row + l, count);
                  store_group(row + l, r, count);
                });
              });
}

template <class S, class C>
void gemm(const GemmArgs<S, C>& args) {
  for (std::int64_t product = 0; product < args.batch; ++product) {
    Strided<S> a{args.a + product * args.stride_a, args.lda, 1};
    Strided<S> b{args.b + product * args.stride_b, args.ldb, 1};
    if (args.transpose_a) a = {a.data, 1, args.lda};
    if (args.transpose_b) b = {b.data, 1, args.ldb};
    strided_product(args.m, args.n, args.k, a, b, args.c + product * args.stride_c, args.ldc, args.alpha,
                    args.beta);
  }
}

}  // namespace
}  // namespace tenon::kernels
