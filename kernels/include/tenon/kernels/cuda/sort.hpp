// Kernel bodies that sort row ids, stably, with their original positions: a radix sort by four bits at a
// time, least significant first, each pass of three launches (count, place, move). Integers alone and no
// atomics, so there is one result. For n ids below `rows` that is O(n log2(rows) / 4) work.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>

namespace tenon::kernels::cuda {

inline constexpr int kDigitBits = 4;
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int kSortItems = 8;  ///< neighbours that one thread keeps in order
inline constexpr std::int64_t kSortTile = kThreads * kSortItems;  ///< ids of a block

constexpr std::int64_t sort_tiles(std::int64_t n) {
  return (n + kSortTile - 1) / kSortTile;
}
/// Passes over ids in [0, rows); at least one, which also writes the positions.
constexpr int sort_passes(std::int64_t rows) {
  int passes = 1;
  while (passes * kDigitBits < 32 && (rows - 1) >> (passes * kDigitBits) > 0) ++passes;
  return passes;
}

/// One pass: sorts ids and positions by the digit at `shift`. Positions are null in the first pass: ids are
/// in their original order.
struct SortPass {
  std::int64_t n;
  int shift;
  const std::int32_t *ids, *positions;
  std::int32_t *sorted, *sorted_positions;
  std::int32_t* places;  ///< [kDigits, tiles]: of each digit in each tile, its count and then its first place

  TENON_BOTH int digit(std::int64_t i) const { return (ids[i] >> shift) & (kDigits - 1); }
  /// Calls f(i) for the ids of a thread, in order.
  template <class F>
  TENON_BOTH void each_own(std::int64_t tile, int thread, F f) const {
    const std::int64_t first = tile * kSortTile + std::int64_t{thread} * kSortItems;
    for (std::int64_t i = first; i < first + kSortItems && i < n; ++i) f(i);
  }
  /// counts[digit][thread] of a tile.
  TENON_BOTH void count(const Block& block, std::int64_t tile, std::int32_t* counts) const {
    block.each([&](int thread) {
      for (int d = 0; d < kDigits; ++d) counts[d * kThreads + thread] = 0;
      each_own(tile, thread, [&](std::int64_t i) { ++counts[digit(i) * kThreads + thread]; });
    });
  }
  static Grid grid(std::int64_t n) {
    return {sort_tiles(n), kThreads, (kDigits + 1) * kThreads * sizeof(std::int32_t)};
  }
};

/// places = number of each digit in a tile. A block per tile.
struct CountDigits {
  SortPass pass;

  TENON_BOTH void operator()(const Block& block) const {
    std::int32_t* const counts = block.shared<std::int32_t>();
    const CountDigits& a = *this;
    pass.count(block, block.index(), counts);
    for (int half = kThreads / 2; half > 0; half /= 2) {
      block.each([&](int thread) {
        if (thread >= half) return;
        for (int d = 0; d < kDigits; ++d)
          counts[d * kThreads + thread] += counts[d * kThreads + thread + half];
      });
    }
    block.each([&](int thread) {
      if (thread < kDigits)
        a.pass.places[thread * block.blocks() + block.index()] = counts[thread * kThreads];
    });
  }
};

/// places[i] = sum of places before i: begin of a tile's ids with a digit. One block; each thread processes
/// neighbours.
struct SumPlaces {
  std::int64_t n;
  std::int32_t* places;

  static Grid mesh() { return {1, kThreads, kThreads * sizeof(std::int32_t)}; }

  TENON_BOTH void operator()(const Block& block) const {
    std::int32_t* const before = block.shared<std::int32_t>();
    const SumPlaces& a = *this;
    const std::int64_t share = (n + block.threads() - 1) / block.threads();
    const auto each_own = [&](int thread, auto f) {
      for (std::int64_t i = thread * share; i < (thread + 1) * share && i < a.n; ++i) f(i);
    };
    block.each([&](int thread) {
      std::int32_t own = 0;
      each_own(thread, [&](std::int64_t i) { own += a.places[i]; });
      before[thread] = own;
    });
    block.each([&](int thread) {
      if (thread != 0) return;
      std::int32_t sum = 0;
      for (int t = 0; t < block.threads(); ++t) {
        const std::int32_t own = before[t];
        before[t] = sum;
        sum += own;
      }
    });
    block.each([&](int thread) {
      std::int32_t sum = before[thread];
      each_own(thread, [&](std::int64_t i) {
        const std::int32_t own = a.places[i];
        a.places[i] = sum;
        sum += own;
      });
    });
  }
};

/// Moves ids and positions to their places. Among equal digits threads come in order, and so do a thread's
/// own ids: hence the sort is stable. A thread per digit and slice of threads counts the earlier ones.
struct MoveIds {
  static constexpr int kSlices = kThreads / kDigits;
  SortPass pass;

  TENON_BOTH void operator()(const Block& block) const {
    std::int32_t* const counts = block.shared<std::int32_t>();
    std::int32_t* const slices = counts + kDigits * kThreads;
    const MoveIds& a = *this;
    constexpr int kLength = kThreads / kSlices;
    pass.count(block, block.index(), counts);
    block.each([&](int thread) {
      std::int32_t sum = 0;
      for (int t = 0; t < kLength; ++t) {
        std::int32_t& own = counts[thread * kLength + t];
        const std::int32_t count = own;
        own = sum;
        sum += count;
      }
      slices[thread] = sum;
    });
    block.each([&](int thread) {
      if (thread >= kDigits) return;
      std::int32_t sum = a.pass.places[thread * block.blocks() + block.index()];
      for (int s = thread * kSlices; s < (thread + 1) * kSlices; ++s) {
        const std::int32_t own = slices[s];
        slices[s] = sum;
        sum += own;
      }
    });
    block.each([&](int thread) {
      a.pass.each_own(block.index(), thread, [&](std::int64_t i) {
        const int at = a.pass.digit(i) * kThreads + thread;
        const std::int32_t to = slices[at / kLength] + counts[at]++;
        a.pass.sorted[to] = a.pass.ids[i];
        a.pass.sorted_positions[to] =
            a.pass.positions != nullptr ? a.pass.positions[i] : static_cast<std::int32_t>(i);
      });
    });
  }
};

}  // namespace tenon::kernels::cuda
