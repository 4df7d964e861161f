// Kernel bodies of sums over the rows of a matrix, one per column: parameter gradients and the like. Two
// stages: slabs of rows into partial sums, then those in order; one stage where there is one slab. The slabs,
// and so the order of every sum, depend on the shape alone.
#pragma once

#include <tenon/kernels/cuda/rows.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

inline constexpr int kColumnTile = 32;            ///< columns of a block: a warp reads them side by side
inline constexpr std::int64_t kMostTiles = 1024;  ///< tiles of all slabs together, where there are several

/// Split of the rows: `count` slabs of `rows`, the last of which may have fewer.
struct Slabs {
  std::int64_t count = 1, rows = 0;
};
constexpr std::int64_t column_tiles(std::int64_t columns) {
  return (columns + kColumnTile - 1) / kColumnTile;
}
/// Slabs of at least `shortest` rows such that `sets` times their number is at most kMostTiles.
constexpr Slabs slabs_of(std::int64_t rows, std::int64_t sets, std::int64_t shortest) {
  std::int64_t most = sets < 1 ? 1 : kMostTiles / sets;
  if (most > rows / shortest) most = rows / shortest;
  if (most <= 1) return {1, rows};
  const std::int64_t length = (rows + most - 1) / most;
  return {(rows + length - 1) / length, length};
}
constexpr Slabs slabs_of_rows(std::int64_t rows, std::int64_t columns) {
  return slabs_of(rows, column_tiles(columns), 64);
}
/// Upper bound for any shape of the bytes of the partial sums between the stages.
template <class A, int K>
inline constexpr std::size_t kMostPartialBytes = kMostTiles* kColumnTile* K * sizeof(A);

/// Destinations of K sums of each column: out[k][column] (+)=. Null for sums that are not wanted.
template <class A, int K>
struct ColumnOutputs {
  A* out[K];
  bool accumulate;
  TENON_BOTH void put(std::int64_t column, const Sums<A, K>& sums) const {
    for (int k = 0; k < K; ++k) {
      if (out[k] != nullptr) out[k][column] = accumulate ? out[k][column] + sums.of[k] : sums.of[k];
    }
  }
};

/// The first stage. terms(row, column) returns K terms. A block of kThreads processes a tile of a slab:
/// thread t the column t % 32 and every eighth row, whose sums a tree joins. partial: [slabs, columns].
template <class A, int K, class Terms>
struct ColumnSums {
  std::int64_t rows, columns;
  Slabs slabs;
  Terms terms;
  Sums<A, K>* partial;
  ColumnOutputs<A, K> outputs;

  std::int64_t sums() const { return columns; }
  Grid mesh() const { return {column_tiles(columns) * slabs.count, kThreads, kThreads * sizeof(Sums<A, K>)}; }

  TENON_BOTH void operator()(const Block& block) const {
    Sums<A, K>* const sums = block.shared<Sums<A, K>>();
    const ColumnSums& a = *this;
    const std::int64_t tiles = column_tiles(columns);
    for (std::int64_t unit = block.index(); unit < tiles * slabs.count; unit += block.blocks()) {
      const std::int64_t slab = unit / tiles, first = unit % tiles * kColumnTile;
      const std::int64_t begin = slab * slabs.rows;
      const std::int64_t end = begin + slabs.rows < rows ? begin + slabs.rows : rows;
      const int lanes = block.threads() / kColumnTile;
      block.each([&](int thread) {
        const std::int64_t column = first + thread % kColumnTile;
        Sums<A, K> own{};
        if (column < a.columns) {
          for (std::int64_t row = begin + thread / kColumnTile; row < end; row += lanes)
            own = own + a.terms(row, column);
        }
        sums[thread] = own;
      });
      for (int half = lanes / 2; half > 0; half /= 2) {
        block.each([&](int thread) {
          if (thread < half * kColumnTile) sums[thread] = sums[thread] + sums[thread + half * kColumnTile];
        });
      }
      block.each([&](int thread) {
        const std::int64_t column = first + thread;
        if (thread >= kColumnTile || column >= a.columns) return;
        if (a.slabs.count == 1) {
          a.outputs.put(column, sums[thread]);
        } else {
          a.partial[slab * a.columns + column] = sums[thread];
        }
      });
    }
  }
};

/// The second stage, where there are several slabs.
template <class A, int K>
struct ColumnTotals {
  std::int64_t columns, slabs;
  const Sums<A, K>* partial;
  ColumnOutputs<A, K> outputs;

  TENON_BOTH void operator()(const Block& block) const {
    const ColumnTotals& a = *this;
    for_each_element(block, columns, [&](std::int64_t column) {
      Sums<A, K> total = a.partial[column];
      for (std::int64_t slab = 1; slab < a.slabs; ++slab)
        total = total + a.partial[slab * a.columns + column];
      a.outputs.put(column, total);
    });
  }
};

/// Terms of plain sums of x [rows, columns].
template <class S>
struct RowTerms {
  std::int64_t columns;
  const S* x;
  TENON_BOTH Sums<Arith<S>, 1> operator()(std::int64_t row, std::int64_t column) const {
    return {{get(x[row * columns + column])}};
  }
};

}  // namespace tenon::kernels::cuda
