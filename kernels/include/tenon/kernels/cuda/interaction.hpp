// Kernel bodies of interactions between the vectors of a sample. Dot products: a block processes a tile of
// pairs and walks over the width in pieces that it keeps in shared memory; every sum is one ascending chain,
// so the bits are those of reference/interaction.hpp. Concatenation and sums: one thread per element.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/interaction.hpp>

namespace tenon::kernels::cuda {

/// Side of a tile of pairs, and terms of a piece.
inline constexpr int kInteractionTile = 32;
/// Elements of a tile that a thread computes: every kInteractionStep-th row of a column.
inline constexpr int kInteractionRows = 4, kInteractionStep = kInteractionTile / kInteractionRows;
static_assert(kInteractionStep * kInteractionTile == kThreads);
/// A row of a tile in shared memory; one more element spreads a warp that reads a column over different
/// banks.
inline constexpr int kInteractionStride = kInteractionTile + 1;

constexpr std::int64_t interaction_tiles(std::int64_t n) {
  return (n + kInteractionTile - 1) / kInteractionTile;
}

/// Vector i of a sample: t_0 is z0's.
template <class S>
TENON_BOTH const S* interacting(const InteractionArgs<S>& a, std::int64_t sample, std::int64_t i) {
  return i == 0 ? a.z0 + sample * a.width : a.z + (sample * (a.vectors - 1) + i - 1) * a.width;
}
/// Column of t_i . t_j, j <= i.
template <class S>
TENON_BOTH std::int64_t pair_column(const InteractionArgs<S>& a, std::int64_t i, std::int64_t j) {
  return a.width + (a.itself ? i * (i + 1) : i * (i - 1)) / 2 + j;
}

/// Sums of a thread's elements of a tile.
template <class A>
struct InteractionSums {
  A of[kInteractionRows];
};

template <class S>
struct InteractionForward {
  InteractionArgs<S> args;
  std::int64_t samples;

  /// Tiles above the diagonal are idle: for few vectors there is a single tile, which is not.
  Grid mesh() const {
    const std::int64_t tiles = interaction_tiles(args.vectors);
    return {samples * tiles * tiles, kThreads, 2 * kInteractionTile * kInteractionStride * sizeof(Arith<S>)};
  }

  TENON_BOTH void operator()(const Block& block) const {
    using A = Arith<S>;
    const InteractionArgs<S>& a = args;
    const std::int64_t tiles = interaction_tiles(a.vectors), sample = block.index() / (tiles * tiles),
                       first_i = block.index() / tiles % tiles * kInteractionTile,
                       first_j = block.index() % tiles * kInteractionTile;
    if (first_j > first_i) return;
    A* const left = block.shared<A>();
    A* const right = left + kInteractionTile * kInteractionStride;
    S* const y = a.y + sample * a.columns;
    PerThread<InteractionSums<A>> sums;
    block.each([&](int thread) {
      for (int q = 0; q < kInteractionRows; ++q) sums[thread].of[q] = 0;
      if (first_i > 0) return;
      for (std::int64_t k = thread; k < a.width; k += block.threads()) y[k] = interacting(a, sample, 0)[k];
    });
    for (std::int64_t first_k = 0; first_k < a.width; first_k += kInteractionTile) {
      const int terms = static_cast<int>(
          a.width - first_k < kInteractionTile ? a.width - first_k : std::int64_t{kInteractionTile});
      block.each([&](int thread) {
        const int k = thread % kInteractionTile;
        for (int v = thread / kInteractionTile; v < kInteractionTile && k < terms; v += kInteractionStep) {
          if (first_i + v < a.vectors)
            left[v * kInteractionStride + k] = get(interacting(a, sample, first_i + v)[first_k + k]);
          if (first_j + v < a.vectors)
            right[v * kInteractionStride + k] = get(interacting(a, sample, first_j + v)[first_k + k]);
        }
      });
      block.each([&](int thread) {
        const int i = thread / kInteractionTile, j = thread % kInteractionTile;
        for (int k = 0; k < terms; ++k) {
          const A factor = right[j * kInteractionStride + k];
          TENON_UNROLL
          for (int q = 0; q < kInteractionRows; ++q)
            sums[thread].of[q] += left[(i + q * kInteractionStep) * kInteractionStride + k] * factor;
        }
      });
    }
    block.each([&](int thread) {
      TENON_UNROLL
      for (int q = 0; q < kInteractionRows; ++q) {
        const std::int64_t i = first_i + thread / kInteractionTile + q * kInteractionStep,
                           j = first_j + thread % kInteractionTile;
        if (i < a.vectors && (j < i || (a.itself && j == i)))
          y[pair_column(a, i, j)] = put<S>(sums[thread].of[q]);
      }
    });
  }
};

/// The gradients of the vectors: the symmetric matrix of the pairs' gradients times the vectors. dz0 and dz
/// may be null.
template <class S>
struct InteractionBackward {
  InteractionArgs<S> args;
  std::int64_t samples;

  Grid mesh() const {
    return {samples * interaction_tiles(args.vectors) * interaction_tiles(args.width), kThreads,
            2 * kInteractionTile * kInteractionStride * sizeof(Arith<S>)};
  }

  /// Gradient of t_i . t_j; twice that for i = j, whose two factors are one.
  TENON_BOTH Arith<S> gradient(const S* dy, std::int64_t i, std::int64_t j) const {
    if (i == j) return args.itself ? 2 * get(dy[pair_column(args, i, i)]) : Arith<S>{0};
    return get(dy[i > j ? pair_column(args, i, j) : pair_column(args, j, i)]);
  }

  TENON_BOTH void operator()(const Block& block) const {
    using A = Arith<S>;
    const InteractionBackward& body = *this;
    const InteractionArgs<S>& a = args;
    const std::int64_t tiles_i = interaction_tiles(a.vectors), tiles_k = interaction_tiles(a.width),
                       sample = block.index() / (tiles_i * tiles_k),
                       first_i = block.index() / tiles_k % tiles_i * kInteractionTile,
                       first_k = block.index() % tiles_k * kInteractionTile;
    A* const gradients = block.shared<A>();
    A* const vectors = gradients + kInteractionTile * kInteractionStride;
    const S* const dy = a.dy + sample * a.columns;
    PerThread<InteractionSums<A>> sums;
    block.each([&](int thread) {
      const std::int64_t i = first_i + thread / kInteractionTile, k = first_k + thread % kInteractionTile;
      for (int q = 0; q < kInteractionRows; ++q) sums[thread].of[q] = 0;
      if (i == 0 && k < a.width) sums[thread].of[0] = get(dy[k]);
    });
    for (std::int64_t first_j = 0; first_j < a.vectors; first_j += kInteractionTile) {
      const int terms = static_cast<int>(
          a.vectors - first_j < kInteractionTile ? a.vectors - first_j : std::int64_t{kInteractionTile});
      block.each([&](int thread) {
        const int column = thread % kInteractionTile;
        for (int v = thread / kInteractionTile; v < kInteractionTile; v += kInteractionStep) {
          if (first_i + v < a.vectors && column < terms)
            gradients[v * kInteractionStride + column] = body.gradient(dy, first_i + v, first_j + column);
          if (v < terms && first_k + column < a.width)
            vectors[v * kInteractionStride + column] =
                get(interacting(a, sample, first_j + v)[first_k + column]);
        }
      });
      block.each([&](int thread) {
        const int i = thread / kInteractionTile, k = thread % kInteractionTile;
        for (int j = 0; j < terms; ++j) {
          const A factor = vectors[j * kInteractionStride + k];
          TENON_UNROLL
          for (int q = 0; q < kInteractionRows; ++q)
            sums[thread].of[q] += gradients[(i + q * kInteractionStep) * kInteractionStride + j] * factor;
        }
      });
    }
    block.each([&](int thread) {
      TENON_UNROLL
      for (int q = 0; q < kInteractionRows; ++q) {
        const std::int64_t i = first_i + thread / kInteractionTile + q * kInteractionStep,
                           k = first_k + thread % kInteractionTile;
        if (i < a.vectors && k < a.width) body.write(sample, i, k, sums[thread].of[q]);
      }
    });
  }

  TENON_BOTH void write(std::int64_t sample, std::int64_t i, std::int64_t k, Arith<S> sum) const {
    S* const rows = i == 0 ? args.dz0 : args.dz;
    if (rows == nullptr) return;
    S& out = rows[(i == 0 ? sample : sample * (args.vectors - 1) + i - 1) * args.width + k];
    const bool accumulate = i == 0 ? args.accumulate_z0 : args.accumulate_z;
    out = put<S>(accumulate ? get(out) + sum : sum);
  }
};

/// Rows of y are z0's row followed by the sample's vectors.
template <class S>
struct ConcatenateVectors {
  const S *z0, *z;
  S* y;
  std::int64_t samples, first, rest;  ///< elements of a row of z0, and of all vectors of a sample

  TENON_BOTH void operator()(const Block& block) const {
    const ConcatenateVectors& a = *this;
    const std::int64_t columns = first + rest;
    for_each_element(block, samples * columns, [&](std::int64_t i) {
      const std::int64_t sample = i / columns, column = i % columns;
      a.y[i] = column < a.first ? a.z0[sample * a.first + column] : a.z[sample * a.rest + column - a.first];
    });
  }
};

/// y = z0 + sum of the vectors, which are added in order, in groups of 32 that are added in order.
template <class S>
struct SumVectors {
  const S *z0, *z;
  S* y;
  std::int64_t samples, count, width;

  TENON_BOTH void operator()(const Block& block) const {
    constexpr std::int64_t kGroup = 32;
    const SumVectors& a = *this;
    for_each_element(block, samples * width, [&](std::int64_t i) {
      const S* const vectors = a.z + i / a.width * a.count * a.width + i % a.width;
      Arith<S> total = 0;
      for (std::int64_t begin = 0; begin < a.count; begin += kGroup) {
        Arith<S> group = 0;
        for (std::int64_t t = begin; t < a.count && t < begin + kGroup; ++t)
          group += get(vectors[t * a.width]);
        total += group;
      }
      a.y[i] = put<S>(get(a.z0[i]) + total);
    });
  }
};

/// Copies a part of the rows of dy: dx[sample, repeat, k] (+)= dy[sample, from + k].
template <class S>
struct SpreadRows {
  const S* dy;
  S* dx;
  std::int64_t samples, columns, from, repeats, width;
  bool accumulate;

  std::int64_t items() const { return samples * repeats * width; }
  TENON_BOTH void operator()(const Block& block) const {
    const SpreadRows& a = *this;
    for_each_element(block, samples * repeats * width, [&](std::int64_t i) {
      const S part = a.dy[i / (a.repeats * a.width) * a.columns + a.from + i % a.width];
      a.dx[i] = a.accumulate ? put<S>(get(a.dx[i]) + get(part)) : part;
    });
  }
};

}  // namespace tenon::kernels::cuda
