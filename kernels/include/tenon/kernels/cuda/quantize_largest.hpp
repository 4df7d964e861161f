// Kernel bodies that find the largest magnitudes for the scales of a matrix or of its lines. Bits of
// magnitudes are compared, so NaN is above infinity; results are raised, not set.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/quantize.hpp>

namespace tenon::kernels::cuda {

/// A matrix [rows, columns] with `stride` elements from row to row, and the magnitudes to search: those of
/// its elements, or of its elements rotated by 16 along columns (or `down` the columns), zeros beyond its
/// end.
template <class S>
struct Magnitudes {
  const S* x = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool rotated = false, down = false;

  /// Number of pieces, which one thread reads at once: 16 elements along a row, or of a column.
  TENON_BOTH std::int64_t across() const { return down ? columns : pieces_of(columns, 16); }
  TENON_BOTH std::int64_t high() const { return down ? pieces_of(rows, 16) : rows; }

  /// The largest of piece (i, j) of high() x across().
  TENON_BOTH std::uint32_t of(std::int64_t i, std::int64_t j) const {
    const std::int64_t row = down ? i * 16 : i, column = down ? j : j * 16;
    float v[16];
    if (down) {
      TENON_UNROLL
      for (int e = 0; e < 16; ++e)
        v[e] = row + e < rows ? reference::get(x[(row + e) * stride + column]) : 0.0f;
    } else {
      const S* const from = x + row * stride + column;
      const auto first = load_run<8>(from, left_of(columns, column, 8));
      const auto second = load_run<8>(from + 8, left_of(columns, column + 8, 8));
      TENON_UNROLL
      for (int e = 0; e < 8; ++e) v[e] = reference::get(first.at[e]), v[e + 8] = reference::get(second.at[e]);
    }
    if (rotated) {
      for (float& value : v) value = to_float(to_bf16(value));
      rotate16(v);
    }
    std::uint32_t largest = 0;
    for (const float value : v) largest = Larger{}(largest, magnitude_bits(value));
    return largest;
  }
};

/// Raises *largest to the largest of all.
template <class S>
struct LargestOfAll {
  Magnitudes<S> of;
  std::uint32_t* largest;

  TENON_BOTH void operator()(const Block& block) const {
    auto* const found = block.shared<std::uint32_t>();
    const LargestOfAll& a = *this;
    block.each([&](int thread) {
      const std::int64_t stride = block.blocks() * block.threads(), across = a.of.across();
      std::uint32_t own = 0;
      for (std::int64_t at = block.index() * block.threads() + thread; at < across * a.of.high();
           at += stride) {
        const Divided place = divided(at, across);
        own = Larger{}(own, a.of.of(place.quotient, place.remainder));
      }
      found[thread] = own;
    });
    reduce_block(block, found, Larger{});
    block.each([&](int thread) {
      if (thread == 0) raise(a.largest, found[0]);
    });
  }
};

/// Raises largest[line] to the largest of its line: of rows, each by one block of threads, or of columns,
/// where neighbouring threads process neighbouring columns and `kPieces` groups of 16 rows.
template <class S>
struct LargestOfLines {
  Magnitudes<S> of;
  std::uint32_t* largest;
  static constexpr std::int64_t kPieces = 8;

  TENON_BOTH void operator()(const Block& block) const {
    const LargestOfLines& a = *this;
    if (of.down) {
      const std::int64_t chunks = pieces_of(of.high(), kPieces);
      for_each_element(block, chunks * of.columns, [&](std::int64_t at) {
        const std::int64_t first = at / a.of.columns * kPieces, column = at % a.of.columns;
        std::uint32_t own = 0;
        for (std::int64_t i = first; i < first + kPieces && i < a.of.high(); ++i)
          own = Larger{}(own, a.of.of(i, column));
        raise(a.largest + column, own);
      });
      return;
    }
    auto* const found = block.shared<std::uint32_t>();
    for (std::int64_t row = block.index(); row < of.rows; row += block.blocks()) {
      block.each([&](int thread) {
        std::uint32_t own = 0;
        for (std::int64_t j = thread; j < a.of.across(); j += block.threads())
          own = Larger{}(own, a.of.of(row, j));
        found[thread] = own;
      });
      reduce_block(block, found, Larger{});
      block.each([&](int thread) {
        if (thread == 0) raise(a.largest + row, found[0]);
      });
    }
  }
};

/// The two-level scale of each line from its largest magnitude; `decode` may be null.
struct LineScales {
  const std::uint32_t* largest;
  std::int64_t lines;
  float top;
  TensorScale* scales;
  float* decode;

  TENON_BOTH void operator()(const Block& block) const {
    const LineScales& a = *this;
    for_each_element(block, lines, [&](std::int64_t line) {
      a.scales[line] = two_level_scale(std::bit_cast<float>(a.largest[line]), a.top);
      if (a.decode != nullptr) a.decode[line] = a.scales[line].decode;
    });
  }
};

}  // namespace tenon::kernels::cuda
