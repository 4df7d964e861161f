// Quantizing lines of blocks in registers, in one pass over the matrix and without shared memory: blocks
// along rows, of which neighbouring threads hold 8 elements each, and blocks down columns, of which a thread
// holds two. Bits are those of reference/quantize.hpp.
#pragma once

#include <tenon/kernels/cuda/quantize.hpp>

namespace tenon::kernels::cuda {

/// Raises the matrix's largest magnitude to that of any thread.
template <class S>
TENON_BOTH void raise_magnitude(const Block& block, const QuantizeArgs<S>& args,
                                PerThread<std::uint32_t>& most) {
  if (args.magnitude == nullptr) return;
  join_neighbours<kWarpThreads>(block, most, Larger{});
  block.each_apart([&](int thread) {
    if (thread % kWarpThreads == 0) raise(args.magnitude, most[thread]);
  });
}

/// Blocks of 1 x (8 kPieces), neither rotated nor four over six.
template <class S, Element kElement, int kPieces>
struct QuantizeRows {
  QuantizeArgs<S> args;

  /// Runs of a row, with those that its last block lacks.
  TENON_BOTH std::int64_t across() const { return pieces_of(args.columns, kQuantizeRun * kPieces) * kPieces; }
  std::int64_t items() const { return args.rows * across(); }

  TENON_BOTH void operator()(const Block& block) const {
    const QuantizeRows& k = *this;
    const std::int64_t wide = across(), runs = args.rows * wide, stride = block.blocks() * block.threads();
    PerThread<Run<S, kQuantizeRun>> run;
    PerThread<std::uint32_t> largest, most;
    block.each_apart([&](int thread) { most[thread] = 0; });
    // All threads of the block take all turns, since neighbours join their results.
    for (std::int64_t first = block.index() * block.threads(); first < runs; first += stride) {
      block.each_apart([&](int thread) {
        const Place at = k.place(first + thread, wide);
        run[thread] =
            load_run<kQuantizeRun>(at.n > 0 ? k.args.x + at.row * k.args.stride + at.column : k.args.x, at.n);
        std::uint32_t own = 0;
        TENON_UNROLL
        for (int e = 0; e < kQuantizeRun; ++e)
          own = Larger{}(own, magnitude_bits(reference::get(run[thread].at[e])));
        largest[thread] = own;
      });
      join_neighbours<kPieces>(block, largest, Larger{});
      block.each_apart([&](int thread) {
        const Place at = k.place(first + thread, wide);
        if (at.n == 0) return;
        most[thread] = Larger{}(most[thread], largest[thread]);
        const TensorScale tensor = k.args.lines != nullptr ? k.args.lines[at.row] : k.args.tensor;
        const reference::BlockNumbers numbers =
            reference::numbers_of(k.args, std::bit_cast<float>(largest[thread]), tensor);
        const std::int64_t piece = at.column / kQuantizeRun;
        if (piece % kPieces == 0) {
          const std::int64_t index = at.row * k.args.scales_stride + piece / kPieces;
          reference::store_scale(k.args, index, numbers);
        }
        quantize_run<kElement>(k.args, run[thread], numbers, at.row, at.column, at.n);
      });
    }
    raise_magnitude(block, args, most);
  }

 private:
  /// A run's first element, and how many there are: none beyond the matrix.
  struct Place {
    std::int64_t row, column;
    int n;
  };
  TENON_BOTH Place place(std::int64_t at, std::int64_t wide) const {
    const Divided d = divided(at, wide);
    const std::int64_t column = d.remainder * kQuantizeRun;
    return {d.quotient, column, d.quotient < args.rows ? left_of(args.columns, column, kQuantizeRun) : 0};
  }
};

/// Blocks of kRows x 1, 16 or 32 of them, not four over six; those of 16 may be rotated.
template <class S, Element kElement, int kRows>
struct QuantizeColumns {
  QuantizeArgs<S> args;

  TENON_BOTH std::int64_t across() const { return pieces_of(args.columns, 2); }
  TENON_BOTH std::int64_t items() const { return pieces_of(reference::written_rows(args), kRows) * across(); }

  TENON_BOTH void operator()(const Block& block) const {
    const QuantizeColumns& k = *this;
    const std::int64_t wide = across(), all = items(), stride = block.blocks() * block.threads();
    PerThread<std::uint32_t> most;
    block.each_apart([&](int thread) {
      std::uint32_t own = 0;
      for (std::int64_t at = block.index() * block.threads() + thread; at < all; at += stride) {
        const Divided d = divided(at, wide);
        own = Larger{}(own, k.quantize(d.quotient, d.remainder * 2));
      }
      most[thread] = own;
    });
    raise_magnitude(block, args, most);
  }

 private:
  static constexpr int kGroup = 16;  ///< elements that rotate together, or share words of draws

  /// Block `down` of columns `column` and column + 1; returns their largest magnitude.
  TENON_BOTH std::uint32_t quantize(std::int64_t down, std::int64_t column) const {
    const std::int64_t row = down * kRows, rows = reference::written_rows(args);
    const int n = left_of(args.columns, column, 2);
    Run<S, 2> pairs[kRows];
    TENON_UNROLL
    for (int e = 0; e < kRows; ++e) {
      const bool inside = row + e < args.rows;
      pairs[e] = load_run<2>(inside ? args.x + (row + e) * args.stride + column : args.x, inside ? n : 0);
    }
    reference::BlockNumbers numbers[2] = {};
    std::uint32_t most = 0;
    TENON_UNROLL
    for (int c = 0; c < 2; ++c) {
      if constexpr (kRows == kGroup) {
        if (args.rotate) rotate_group<S>([&](int e) -> S& { return pairs[e].at[c]; });
      }
      std::uint32_t largest = 0;
      TENON_UNROLL
      for (int e = 0; e < kRows; ++e)
        largest = Larger{}(largest, magnitude_bits(reference::get(pairs[e].at[c])));
      if (c >= n) continue;
      most = Larger{}(most, largest);
      const TensorScale tensor = args.lines != nullptr ? args.lines[column + c] : args.tensor;
      numbers[c] = reference::numbers_of(args, std::bit_cast<float>(largest), tensor);
      const std::int64_t index = down * args.scales_stride + column + c;
      reference::store_scale(args, index, numbers[c]);
    }
    Draws<S, kGroup, true> left(args, row, column), right(args, row, column + 1);
    TENON_UNROLL
    for (int e = 0; e < kRows; ++e) {
      if (row + e >= rows) continue;
      Rounded<2> rounded;
      const auto round = [&](int c, Draws<S, kGroup, true>& draws) {
        rounded.put(c, round_element<kElement>(args, reference::get(pairs[e].at[c]), numbers[c], draws, e),
                    numbers[c]);
      };
      round(0, left);
      if (n > 1) round(1, right);
      store_rounded(args, rounded, row + e, column, n);
    }
    return most;
  }
};

}  // namespace tenon::kernels::cuda
