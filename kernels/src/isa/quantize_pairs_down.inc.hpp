// NVFP4 of bfloat16 in pairs of columns (quantize_pairs.inc.hpp), down columns: tiles of 16 rows and 32
// columns, rotated and rounded, and codes back to values.
#pragma once

#include "isa/quantize_pairs.inc.hpp"
#include "isa/rotate.inc.hpp"

namespace tenon::kernels {
namespace {

/// Registers of 16 rows. They are read once: where rows lie a multiple of a page apart, they share so few
/// lines of the nearest cache that the first are gone when the last is read.
TENON_INLINE void load_rows(const Bf16* x, std::int64_t stride, IntPart (&words)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) words[i] = load_words(x + i * stride);
}
TENON_INLINE void columns_of(const IntPart (&words)[kLanes], int odd, Part (&v)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = odd != 0 ? odd_columns(words[i]) : even_columns(words[i]);
}

/// Rotated values of a tile that are still sums, and what rounds them: of even and of odd columns.
struct Tile {
  Part sums[kParts][kLanes][2];
  BlockScales scales[2];
  I draws[2][4];
};

/// Rounds one register of columns of a tile.
template <Draw kDraw, bool kValues, bool kCodes>
TENON_INLINE void quantize_tile_part(const QuantizeArgs<Bf16>& a, const Tile& tile, std::int64_t row,
                                     std::int64_t column, int p) {
  const IntPart sign_bit = splat_part(INT32_MIN);
  const Part encode[] = {tile.scales[0].encode.v[p], tile.scales[1].encode.v[p]};
  const Part decode[] = {tile.scales[0].decode.v[p], tile.scales[1].decode.v[p]};
#pragma GCC unroll 1
  for (int word = 0; word < 4; ++word) {
#pragma GCC unroll 4
    for (int byte = 0; byte < 4; ++byte) {
      const int e = 4 * word + byte;
      IntPart value[2], code[2];
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        const auto x = (IntPart)rotated_value(tile.sums[p][e][odd]);
        IntPart draw = {};
        if constexpr (kDraw != Draw::kNone)
          draw = right_logical(tile.draws[odd][word].v[p], 8 * byte) & splat_part(0xff);
        const Part scaled = (Part)(x & ~sign_bit) * encode[odd];
        const OnMesh rounded =
            on_grid<kDraw>(at_most(scaled, splat_part(Grid<Element::kE2M1>::kLargest)), draw);
        if constexpr (kValues) value[odd] = or_masked((IntPart)(rounded.value * decode[odd]), x, sign_bit);
        if constexpr (kCodes)
          code[odd] = merge_bits(splat_part(7), rounded.code, right_logical(x, 28)) & splat_part(15);
      }
      if constexpr (kValues)
        store_words(a.values + (row + e) * a.values_stride + column, value[1] | right_logical(value[0], 16));
      if constexpr (kCodes)
        store_low_bytes(a.codes + (row + e) * a.codes_stride + column / 2, code[0] | left(code[1], 4));
    }
  }
}

/// A tile of whole blocks, or false where something is not finite.
template <Draw kDraw, bool kValues, bool kCodes>
TENON_INLINE bool quantize_tile(const QuantizeArgs<Bf16>& a, const Stream& stream, std::int64_t row,
                                std::int64_t column, I& met) {
  const Bf16* x = a.x + row * a.stride + column;
  alignas(64) Tile tile;
  I amax[2];
#pragma GCC unroll 1
  for (int p = 0; p < kParts; ++p) {
    IntPart words[kLanes];
    load_rows(x + p * kPartColumns, a.stride, words);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      Part v[kLanes];
      columns_of(words, odd, v);
      sum_rows(v);
      IntPart most = {};
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        tile.sums[p][i][odd] = v[i];
        most = larger_bits(most, (IntPart)v[i] & splat_part(0x7fffffff));
      }
      amax[odd].v[p] = most;
    }
  }
  for (int odd = 0; odd < 2; ++odd) amax[odd] = magnitude_of_sum(amax[odd]);
  const I largest = max_magnitude(amax[0], amax[1]);
  met = max_magnitude(met, largest);
  if (any_beyond(largest, kExponentBits - 1)) return false;
  for (int odd = 0; odd < 2; ++odd) {
    tile.scales[odd] = two_level_scales(amax[odd], a.tensor);
    if constexpr (kDraw != Draw::kNone) {
      Words drawn;
      draw_down<2>(stream, (a.origin_row + row) / kLanes, a.origin_column + column + odd, 0, drawn);
      for (int word = 0; word < 4; ++word) tile.draws[odd][word] = low_halves(drawn.w[word]);
    }
  }
  for (int p = 0; p < kParts; ++p) {
    if (a.scales != nullptr)
      store_low_words(a.scales + row / kLanes * a.scales_stride + column + p * kPartColumns,
                      tile.scales[0].bits.v[p] | left(tile.scales[1].bits.v[p], 8));
    quantize_tile_part<kDraw, kValues, kCodes>(a, tile, row, column + p * kPartColumns, p);
  }
  return true;
}

/// Number of leading columns of a band, whose blocks are rotated down, that form whole tiles.
TENON_INLINE std::int64_t tiled_columns(const QuantizeArgs<Bf16>& a) {
  const bool fits = a.element == Element::kE2M1 && a.scaling == Scaling::kTwoLevel &&
                    (!a.stochastic || a.random_bits == 8) && (a.codes == nullptr || a.packed) &&
                    (a.codes != nullptr || a.values != nullptr);
  return fits ? a.columns / kPairColumns * kPairColumns : 0;
}
/// Those columns of the 16 rows from `row` on.
template <Draw kDraw>
bool quantize_tiles(const QuantizeArgs<Bf16>& a, const Stream& stream, std::int64_t row, std::int64_t columns,
                    I& met) {
  for (std::int64_t column = 0; column < columns; column += kPairColumns) {
    const bool done = a.codes == nullptr    ? quantize_tile<kDraw, true, false>(a, stream, row, column, met)
                      : a.values == nullptr ? quantize_tile<kDraw, false, true>(a, stream, row, column, met)
                                            : quantize_tile<kDraw, true, true>(a, stream, row, column, met);
    if (!done) return false;
  }
  return true;
}

/// Largest magnitudes of 16 rows and 32 columns. Of the last sums and differences only the larger are formed.
TENON_INLINE I largest_of_tile(const Bf16* x, std::int64_t stride) {
  I largest = {};
#pragma GCC unroll 1
  for (int p = 0; p < kParts; ++p) {
    IntPart words[kLanes];
    load_rows(x + p * kPartColumns, stride, words);
    Part v[kLanes];
    columns_of(words, 0, v);
    const IntPart even = largest_sum(v);
    columns_of(words, 1, v);
    largest.v[p] = larger_bits(even, largest_sum(v));
  }
  return magnitude_of_sum(largest);
}

/// A register of columns from as many bytes as there are lanes.
TENON_INLINE void decode_pairs(const std::uint8_t* codes, Part even_scale, Part odd_scale, Bf16* values) {
  const IntPart bytes = part_of_bytes(codes);
  const Part even = decode_e2m1(bytes) * even_scale;
  const Part odd = decode_e2m1(right_logical(bytes, 4)) * odd_scale;
  store_words(values, (IntPart)odd | right_logical((IntPart)even, 16));
}

/// Number of columns that decode_in_pairs handles.
TENON_INLINE std::int64_t decoded_columns(std::int64_t columns, Element element, Scaling scaling,
                                          std::int64_t block_columns, bool packed) {
  const bool fits = element == Element::kE2M1 && scaling == Scaling::kTwoLevel && packed &&
                    (block_columns == 1 || block_columns == kLanes);
  return fits ? columns / kPairColumns * kPairColumns : 0;
}
/// The first `columns` of packed codes; `decode` converts the bits of scales to numbers.
template <class S, class Decode>
TENON_INLINE void decode_in_pairs(const QuantizeArgs<S>& a, std::int64_t columns, Decode decode) {
  for (std::int64_t first = 0; first < a.rows; first += a.block_rows) {
    const std::int64_t end = first + a.block_rows < a.rows ? first + a.block_rows : a.rows;
    const std::uint8_t* scales = a.scales + first / a.block_rows * a.scales_stride;
    for (std::int64_t column = 0; column < columns; column += kPairColumns) {
      F even, odd;
      if (a.block_columns == 1) {
        I bytes;
        for (int p = 0; p < kParts; ++p) bytes.v[p] = part_of_words(scales + column + p * kPartColumns);
        even = decode(bytes & splat_int(0xff));
        odd = decode(shift_right_logical(bytes, 8));
      } else {
        const std::uint8_t* of_two = scales + column / kLanes;
        even = odd = decode(select(first_lanes(kLanes / 2), splat_int(of_two[0]), splat_int(of_two[1])));
      }
      for (std::int64_t row = first; row < end; ++row)
        for (int p = 0; p < kParts; ++p) {
          const std::int64_t at = column + p * kPartColumns;
          decode_pairs(a.codes + row * a.codes_stride + at / 2, even.v[p], odd.v[p],
                       a.values + row * a.values_stride + at);
        }
    }
  }
}

}  // namespace
}  // namespace tenon::kernels
