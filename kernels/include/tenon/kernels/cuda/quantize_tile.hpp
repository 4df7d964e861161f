// Quantizing by tiles in shared memory, in one pass over the matrix: load, rotate, largest magnitude of every
// block, scales, rounding. For blocks whose extents are powers of two: along rows (1x16, 1x32, 1x128), down
// columns (16x1, 32x1, 128x1) and squares. Bits are those of reference/quantize.hpp.
#pragma once

#include <tenon/kernels/cuda/quantize.hpp>

namespace tenon::kernels::cuda {

/// Geometry of a tile; extents are powers of two. Threads form teams, one per block of the tile, whose
/// members search for the largest magnitude together; `largest[member * blocks + block]` is the result of
/// each.
struct QuantizeTile {
  int rows = 0, columns = 0;  ///< 0 rows: these blocks have no tiles
  int blocks = 0, team = 1;
  std::size_t largest_at = 0, numbers_at = 0, bytes = 0;  ///< in shared memory, after the elements
};

constexpr std::int64_t power_of_two_from(std::int64_t n) {
  std::int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

/// The tile for `a`: as wide as threads have neighbouring elements to load, as high as a block.
template <class S>
QuantizeTile tile_of(const QuantizeArgs<S>& a) {
  constexpr std::int64_t kRun = kQuantizeRun, kMostElements = std::int64_t{1} << 14;
  const auto is_power = [](std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; };
  const std::int64_t down = a.block_rows, runs = power_of_two_from(pieces_of(a.columns, kRun));
  if (a.scaling == Scaling::kTensor || !is_power(down) || !is_power(a.block_columns)) return {};
  std::int64_t rows = 0, columns = 0, blocks = 0, team = 0;
  if (a.block_columns >= kRun) {
    const std::int64_t per = a.block_columns / kRun, most = kMostElements / (kRun * down);
    std::int64_t across = down == 1 ? kThreads : most < 32 ? most : 32;
    across = across < runs ? across : runs;
    across = across > per ? across : per;
    if (across > kThreads) return {};
    const std::int64_t once = kThreads / across;  // rows that the threads load at once
    rows = once > down ? once : down;
    columns = across * kRun;
    blocks = rows / down * (columns / a.block_columns);
    team = kThreads / blocks;
  } else if (a.block_columns == 1 && down >= 16 && down <= 512) {
    rows = down;
    columns = 8192 / down < runs * kRun ? 8192 / down : runs * kRun;
    blocks = columns;
    team = columns < kThreads ? kThreads / columns : 1;
    team = team < down ? team : down;
  }
  if (rows == 0 || rows * columns > kMostElements) return {};
  QuantizeTile tile = {.rows = static_cast<int>(rows),
                       .columns = static_cast<int>(columns),
                       .blocks = static_cast<int>(blocks),
                       .team = static_cast<int>(team)};
  tile.largest_at = (rows * columns) * sizeof(S);
  tile.numbers_at = tile.largest_at + (blocks * team) * sizeof(std::uint32_t);
  tile.bytes = tile.numbers_at + blocks * sizeof(reference::BlockNumbers);
  return tile;
}

template <class S>
std::int64_t tiles_of(const QuantizeArgs<S>& a, const QuantizeTile& tile) {
  return pieces_of(reference::written_rows(a), tile.rows) * pieces_of(a.columns, tile.columns);
}

/// Elements of a tile that begins at (row, column) of the matrix, for the functions of the reference.
template <class S>
struct TileElements {
  const S* tile;
  std::int64_t row, column;
  int columns;
  TENON_BOTH float operator()(std::int64_t i, std::int64_t j) const {
    return reference::get(tile[(i - row) * columns + (j - column)]);
  }
};

template <class S, Element kElement>
struct QuantizeTiles {
  QuantizeArgs<S> args;
  QuantizeTile tile;

  /// Every block of threads processes one tile.
  TENON_BOTH void operator()(const Block& block) const {
    const QuantizeTiles& k = *this;
    const std::int64_t wide = pieces_of(args.columns, tile.columns);
    const Place place = {block.index() / wide * tile.rows, block.index() % wide * tile.columns};
    block.each([&](int thread) { k.load(block, place, thread); });
    if (args.rotate) block.each([&](int thread) { k.rotate(block, thread); });
    block.each([&](int thread) { k.find_largest(block, place, thread); });
    for (int half = tile.team / 2; half > 0; half /= 2) join(block, half * tile.blocks);
    block.each([&](int thread) { k.find_scales(block, place, thread); });
    if (k.is_tall()) {
      block.each([&](int thread) { k.encode_down(block, place, thread); });
    } else {
      block.each([&](int thread) { k.encode_across(block, place, thread); });
    }
    if (args.magnitude == nullptr) return;
    for (int half = tile.blocks / 2; half > 0; half /= 2) join(block, half);
    block.each([&](int thread) {
      if (thread == 0) raise(k.args.magnitude, block.shared<std::uint32_t>(k.tile.largest_at)[0]);
    });
  }

 private:
  /// Begin of the tile in the matrix.
  struct Place {
    std::int64_t row, column;
  };
  static constexpr int kRun = kQuantizeRun;

  TENON_BOTH bool is_tall() const { return args.block_columns == 1; }
  TENON_BOTH int block_rows() const { return static_cast<int>(args.block_rows); }
  TENON_BOTH int block_columns() const { return static_cast<int>(args.block_columns); }
  /// Block of the tile that holds element (i, j) of the tile.
  TENON_BOTH int block_of(int i, int j) const {
    return i / block_rows() * (tile.columns / block_columns()) + j / block_columns();
  }

  TENON_BOTH void load(const Block& block, const Place& place, int thread) const {
    S* const staged = block.shared<S>();
    const int across = tile.columns / kRun;
    for (int at = thread; at < tile.rows * across; at += block.threads()) {
      const std::int64_t i = place.row + at / across, j = place.column + at % across * kRun;
      const int n = i < args.rows ? left_of(args.columns, j, kRun) : 0;
      const S* const from = n > 0 ? args.x + i * args.stride + j : staged;
      store_run<kRun>(staged + at * kRun, load_run<kRun>(from, n), kRun);
    }
  }

  /// One group of 16 after the other.
  TENON_BOTH void rotate(const Block& block, int thread) const {
    S* const staged = block.shared<S>();
    const int across = is_tall() ? tile.columns : tile.columns / 16, groups = tile.rows * tile.columns / 16;
    const int step = is_tall() ? tile.columns : 1;
    for (int at = thread; at < groups; at += block.threads()) {
      S* const group = staged + (is_tall() ? at / across * 16 * tile.columns + at % across : at * 16);
      rotate_group<S>([&](int e) -> S& { return group[e * step]; });
    }
  }

  TENON_BOTH void find_largest(const Block& block, const Place& place, int thread) const {
    const S* const staged = block.shared<S>();
    auto* const largest = block.shared<std::uint32_t>(tile.largest_at);
    if (is_tall()) {
      // Neighbouring threads read neighbouring columns; elements beyond the last row are zero.
      for (int at = thread; at < tile.team * tile.blocks; at += block.threads()) {
        std::uint32_t own = 0;
        for (int i = at / tile.blocks; i < tile.rows; i += tile.team)
          own = larger(own, magnitude_bits(reference::get(staged[i * tile.columns + at % tile.blocks])));
        largest[at] = own;
      }
      return;
    }
    // A thread's own runs are below each other, in one block.
    const int across = tile.columns / kRun, per = block_columns() / kRun;
    const int i = thread / across, j = thread % across * kRun;
    const int n = left_of(args.columns, place.column + j, kRun);
    std::uint32_t own = 0;
    for (int row = i; row < tile.rows; row += block.threads() / across) {
      const auto run = load_run<kRun>(staged + row * tile.columns + j, kRun);
      TENON_UNROLL
      for (int e = 0; e < kRun; ++e)
        if (e < n) own = larger(own, magnitude_bits(reference::get(run.at[e])));
    }
    const int member = i % block_rows() * per + thread % across % per;
    largest[member * tile.blocks + block_of(i, j)] = own;
  }

  /// largest[t] = the larger of it and largest[t + half].
  TENON_BOTH void join(const Block& block, int half) const {
    auto* const largest = block.shared<std::uint32_t>(tile.largest_at);
    block.each([&](int thread) {
      for (int at = thread; at < half; at += block.threads())
        largest[at] = larger(largest[at], largest[at + half]);
    });
  }

  TENON_BOTH void find_scales(const Block& block, const Place& place, int thread) const {
    const TileElements<S> x = {block.shared<S>(), place.row, place.column, tile.columns};
    const auto* const largest = block.shared<std::uint32_t>(tile.largest_at);
    auto* const numbers = block.shared<reference::BlockNumbers>(tile.numbers_at);
    const std::int64_t rows = reference::written_rows(args);
    const int across = tile.columns / block_columns();
    for (int b = thread; b < tile.blocks; b += block.threads()) {
      const std::int64_t row = place.row + b / across * block_rows();
      const std::int64_t column = place.column + b % across * block_columns();
      if (row >= rows || column >= args.columns) continue;
      const std::int64_t bottom = row + block_rows() < rows ? row + block_rows() : rows;
      const std::int64_t right =
          column + block_columns() < args.columns ? column + block_columns() : args.columns;
      const TensorScale tensor =
          args.lines != nullptr ? args.lines[reference::runs_down(args) ? column : row] : args.tensor;
      numbers[b] = reference::block_numbers(args, x, reference::Block{row, bottom, column, right},
                                            std::bit_cast<float>(largest[b]), tensor);
      const std::int64_t index = row / block_rows() * args.scales_stride + column / block_columns();
      reference::store_scale(args, index, numbers[b]);
    }
  }

  TENON_BOTH void encode_across(const Block& block, const Place& place, int thread) const {
    const S* const staged = block.shared<S>();
    const auto* const numbers = block.shared<reference::BlockNumbers>(tile.numbers_at);
    const std::int64_t rows = reference::written_rows(args);
    const int across = tile.columns / kRun;
    for (int at = thread; at < tile.rows * across; at += block.threads()) {
      const int i = at / across, j = at % across * kRun;
      const int n = place.row + i < rows ? left_of(args.columns, place.column + j, kRun) : 0;
      if (n == 0) continue;
      quantize_run<kElement>(args, load_run<kRun>(staged + at * kRun, kRun), numbers[block_of(i, j)],
                             place.row + i, place.column + j, n);
    }
  }

  /// Two columns and 16 rows at once: they share the bytes of packed codes, and 16 rows the words of draws.
  TENON_BOTH void encode_down(const Block& block, const Place& place, int thread) const {
    const S* const staged = block.shared<S>();
    const auto* const numbers = block.shared<reference::BlockNumbers>(tile.numbers_at);
    const std::int64_t rows = reference::written_rows(args);
    const int across = tile.columns / 2;
    for (int at = thread; at < across * (tile.rows / 16); at += block.threads()) {
      const int first = at / across * 16, j = at % across * 2;
      const int n = left_of(args.columns, place.column + j, 2);
      if (n == 0) continue;
      const reference::BlockNumbers left = numbers[j], right = numbers[n > 1 ? j + 1 : j];
      const std::int64_t column = place.column + j;
      Draws<S, 16, true> of_left(args, place.row + first, column),
          of_right(args, place.row + first, column + 1);
      TENON_UNROLL
      for (int e = 0; e < 16; ++e) {
        const int i = first + e;
        const std::int64_t row = place.row + i;
        if (row >= rows) continue;
        const auto x = load_run<2>(staged + i * tile.columns + j, 2);
        Rounded<2> rounded;
        const auto round = [&](int c, const reference::BlockNumbers& own, Draws<S, 16, true>& draws) {
          rounded.put(c, round_element<kElement>(args, reference::get(x.at[c]), own, draws, e), own);
        };
        round(0, left, of_left);
        if (n > 1) round(1, right, of_right);
        store_rounded(args, rounded, row, column, n);
      }
    }
  }

  TENON_BOTH static std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }
};

}  // namespace tenon::kernels::cuda
