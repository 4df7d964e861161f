// Matrix products, row-major: C = (C +) alpha op(A) op(B) (+ bias), then a map, possibly batched. Each
// element of C is one chain over k = 0, 1, ... of a product and a sum in the arithmetic type, started at
// zero: the bits of kernels/gemm.hpp's `reference`, whatever the tile. A block computes one square tile of C.
// Slices of A and B are double-buffered in shared memory, so that the next one arrives while this one is
// used; sums are in registers.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/maps.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

/// Four neighbours, read from shared memory at once.
template <class T>
struct alignas(16) Four {
  T at[4];
};

/// Final steps on an element's sum.
template <class T, class C>
struct GemmTail {
  C* c = nullptr;           ///< [batch, m, n]
  const T* bias = nullptr;  ///< [n], or null
  bool accumulate = false;  ///< C is read in its own type, added to, and rounded once
  Map map = Map::kNone;

  /// `scaled` = alpha times the sum of element `i` of C, which is in column `column`.
  TENON_BOTH void put_element(std::int64_t i, std::int64_t column, T scaled) const {
    if (accumulate) scaled = scaled + get(c[i]);
    if (bias != nullptr) scaled = scaled + bias[column];
    c[i] = put<C>(map == Map::kNone ? scaled : mapped(map, scaled));
  }
};

/// Operands of types A and B are widened to T, which is float or double. Tile is 128 or 64: a block has 256
/// threads, each of which has (Tile / 16)^2 sums.
template <class A, class B, class T, class C, int Tile>
struct TiledGemm {
  static constexpr int kSide = 16;  ///< threads along each side of the tile
  static constexpr int kGroups = Tile / kSide / 4;
  static constexpr int kDepth = 16;
  static constexpr int kStride = Tile + 4;  ///< of a slice; keeps fours aligned and spreads rows over banks
  static constexpr int kSlice = kDepth * kStride;
  static constexpr int kLoads = Tile * kDepth / kThreads;
  static constexpr std::size_t kShared = sizeof(T) * 4 * kSlice;

  std::int64_t m = 0, n = 0, k = 0;
  const A* a = nullptr;  ///< [batch, m, k], transposed [batch, k, m]
  bool transpose_a = false;
  const B* b = nullptr;  ///< [batch, k, n], transposed [batch, n, k]
  bool transpose_b = false;
  T alpha = 1;
  GemmTail<T, C> tail;

  static std::int64_t tiles(std::int64_t m, std::int64_t n) {
    return (m + Tile - 1) / Tile * ((n + Tile - 1) / Tile);
  }
  static Grid grid(std::int64_t m, std::int64_t n, std::int64_t batch) {
    return {batch * tiles(m, n), kThreads, kShared};
  }

  /// Sums of rows 4 ty + i + 64 g and columns 4 tx + j + 64 h of the tile.
  struct Sums {
    T at[4 * kGroups][4 * kGroups];
  };
  /// A thread's share of the next slices.
  struct Ahead {
    T a[kLoads], b[kLoads];
  };

  TENON_BOTH void operator()(const Block& block) const {
    const TiledGemm& g = *this;
    const std::int64_t down = (m + Tile - 1) / Tile, across = (n + Tile - 1) / Tile;
    const std::int64_t product = block.index() / (down * across);
    const std::int64_t row = block.index() / across % down * Tile, column = block.index() % across * Tile;
    const A* const a_matrix = a + product * m * k;
    const B* const b_matrix = b + product * k * n;
    T* const slices = block.shared<T>();  // A, B, A, B
    PerThread<Sums> sums;
    PerThread<Ahead> ahead;

    block.each([&](int thread) {
      TENON_UNROLL
      for (int i = 0; i < 4 * kGroups; ++i) {
        TENON_UNROLL
        for (int j = 0; j < 4 * kGroups; ++j) sums[thread].at[i][j] = 0;
      }
      g.fetch(a_matrix, b_matrix, row, column, 0, thread, ahead[thread]);
      g.place(ahead[thread], slices, thread);
    });
    for (std::int64_t begin = 0; begin < k; begin += kDepth) {
      const bool odd = begin / kDepth % 2 != 0, more = begin + kDepth < k;
      T* const now = slices + (odd ? 2 * kSlice : 0);
      T* const next = slices + (odd ? 0 : 2 * kSlice);
      const int depth = g.k - begin < kDepth ? static_cast<int>(g.k - begin) : kDepth;
      block.each([&](int thread) {
        if (more) g.fetch(a_matrix, b_matrix, row, column, begin + kDepth, thread, ahead[thread]);
        multiply(now, depth, thread, sums[thread]);
        if (more) g.place(ahead[thread], next, thread);
      });
    }
    block.each([&](int thread) {
      const std::int64_t first_row = row + thread / kSide * std::int64_t{4};
      const std::int64_t first = column + thread % kSide * std::int64_t{4};
      TENON_UNROLL
      for (int i = 0; i < 4 * kGroups; ++i) {
        const std::int64_t r = first_row + offset(i);
        TENON_UNROLL
        for (int j = 0; j < 4 * kGroups; ++j) {
          const std::int64_t col = first + offset(j);
          if (r < g.m && col < g.n)
            g.tail.put_element((product * g.m + r) * g.n + col, col, g.alpha * sums[thread].at[i][j]);
        }
      }
    });
  }

 private:
  /// Distance of a thread's i-th row or column from its first.
  TENON_BOTH static int offset(int i) { return i % 4 + i / 4 * 4 * kSide; }

  /// Place of the `load`-th element of a thread in a slice: neighbouring threads load neighbours in memory,
  /// which run along k (`along_k`) or along the side of the tile.
  struct Place {
    int side, depth;
  };
  TENON_BOTH static Place place_of(int thread, int load, bool along_k) {
    const int i = thread + load * kThreads;
    return along_k ? Place{i / kDepth, i % kDepth} : Place{i % Tile, i / Tile};
  }

  /// Loads zeros beyond the matrices; they are never multiplied into an element that exists.
  TENON_BOTH void fetch(const A* a_matrix, const B* b_matrix, std::int64_t row, std::int64_t column,
                        std::int64_t begin, int thread, Ahead& ahead) const {
    TENON_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      const Place at = place_of(thread, load, !transpose_a);
      const std::int64_t r = row + at.side, l = begin + at.depth;
      ahead.a[load] = r < m && l < k ? T{get(a_matrix[transpose_a ? l * m + r : r * k + l])} : T{0};
    }
    TENON_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      const Place at = place_of(thread, load, transpose_b);
      const std::int64_t col = column + at.side, l = begin + at.depth;
      ahead.b[load] = col < n && l < k ? T{get(b_matrix[transpose_b ? col * k + l : l * n + col])} : T{0};
    }
  }

  TENON_BOTH void place(const Ahead& ahead, T* slices, int thread) const {
    TENON_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      const Place in_a = place_of(thread, load, !transpose_a), in_b = place_of(thread, load, transpose_b);
      slices[in_a.depth * kStride + in_a.side] = ahead.a[load];
      slices[kSlice + in_b.depth * kStride + in_b.side] = ahead.b[load];
    }
  }

  TENON_BOTH static void multiply(const T* slices, int depth, int thread, Sums& sums) {
    const T* const a_slice = slices + 4 * (thread / kSide);
    const T* const b_slice = slices + kSlice + 4 * (thread % kSide);
    for (int l = 0; l < depth; ++l) {
      Four<T> rows[kGroups], columns[kGroups];
      TENON_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        rows[group] = *reinterpret_cast<const Four<T>*>(a_slice + l * kStride + group * 4 * kSide);
        columns[group] = *reinterpret_cast<const Four<T>*>(b_slice + l * kStride + group * 4 * kSide);
      }
      TENON_UNROLL
      for (int i = 0; i < 4 * kGroups; ++i) {
        TENON_UNROLL
        for (int j = 0; j < 4 * kGroups; ++j)
          sums.at[i][j] = sums.at[i][j] + rows[i / 4].at[i % 4] * columns[j / 4].at[j % 4];
      }
    }
  }
};

/// Computes C from sums that another kernel left in `scaled`, laid out like C.
template <class T, class C>
struct FinishGemm {
  const T* scaled;
  std::int64_t elements, columns;
  GemmTail<T, C> tail;

  TENON_BOTH void operator()(const Block& block) const {
    const FinishGemm& f = *this;
    for_each_element(block, elements, [&](std::int64_t i) {
      f.tail.put_element(i, divided(i, f.columns).remainder, f.scaled[i]);
    });
  }
};

}  // namespace tenon::kernels::cuda
