// NVFP4 of bfloat16 for registers of 64 bytes (quantize_pairs.inc.hpp), down columns: tiles of 16 rows and 32
// columns, rotated and rounded one half of the columns after the other, and codes back to values.
#pragma once

#include "isa/quantize_pairs.inc.hpp"
#include "isa/rotate.inc.hpp"

#if TENON_SIMD_BYTES == 64
namespace tenon::kernels {
namespace {

/// Sums of every second column, even or odd ones, of a tile.
template <int kOdd>
TENON_INLINE void sum_half(const Bf16* x, std::int64_t stride, F (&v)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const I words = load_words(x + i * stride);
    v[i] = kOdd != 0 ? odd_columns(words) : even_columns(words);
  }
  sum_rows(v);
}

/// Lower halves of 16 lanes.
TENON_INLINE I low_halves(const Wide& words) {
  alignas(64) static constexpr std::int32_t kEven[kLanes] = {0,  2,  4,  6,  8,  10, 12, 14,
                                                             16, 18, 20, 22, 24, 26, 28, 30};
  __m512i order;
  __builtin_memcpy(&order, kEven, sizeof order);
  return {{(IntPart)_mm512_maskz_permutex2var_epi32(__mmask16{0xffff}, (__m512i)words.v[0], order,
                                                    (__m512i)words.v[1])}};
}

/// Results of even columns, kept for the odd half of a tile: upper halves of values, codes and scales.
struct EvenColumns {
  I values[kLanes], codes[kLanes], scales;
};

template <int kOdd, Draw kDraw, bool kValues, bool kCodes>
TENON_INLINE bool quantize_half(const QuantizeArgs<Bf16>& a, std::int64_t row, std::int64_t column,
                                EvenColumns& even, I& met) {
  F sums[kLanes];
  sum_half<kOdd>(a.x + row * a.stride + column, a.stride, sums);
  const I amax = largest_rotated(sums);
  met = max_magnitude(met, amax);
  if (_mm512_cmpge_epi32_mask((__m512i)amax.v[0], (__m512i)splat_int(kExponentBits).v[0]) != 0) return false;
  const BlockScales scales = two_level_scales(amax, a.tensor);
  if constexpr (kOdd == 0)
    even.scales = scales.bits;
  else if (a.scales != nullptr)
    store_low_words(a.scales + row / kLanes * a.scales_stride + column,
                    even.scales | shift_left(scales.bits, 8));
  I draws[4];
  if constexpr (kDraw != Draw::kNone) {
    Words drawn;
    draw_words(stream_of(a), (a.origin_row + row) / kLanes, 0, a.origin_column + column + kOdd, 2, 0, drawn);
    for (int w = 0; w < 4; ++w) draws[w] = low_halves(drawn.w[w]);
  }
  const I sign_bit = splat_int(INT32_MIN);
#pragma GCC unroll 16
  for (int e = 0; e < kLanes; ++e) {
    const F x = rotated_value(sums[e]);
    I draw = {};
    if constexpr (kDraw != Draw::kNone)
      draw = shift_right_logical(draws[e / 4], 8 * (e % 4)) & splat_int(0xff);
    const OnMesh rounded =
        on_grid<kDraw>(min(abs(x) * scales.encode, splat(Grid<Element::kE2M1>::kLargest)), draw);
    if constexpr (kValues) {
      const I value = or_masked(bits_of(rounded.value * scales.decode), bits_of(x), sign_bit);
      if constexpr (kOdd == 0)
        even.values[e] = shift_right_logical(value, 16);
      else
        store_words(a.values + (row + e) * a.values_stride + column, even.values[e] | value);
    }
    if constexpr (kCodes) {
      const I code =
          merge_bits(splat_int(7), rounded.code, shift_right_logical(bits_of(x), 28)) & splat_int(15);
      if constexpr (kOdd == 0)
        even.codes[e] = code;
      else
        store_low_bytes(a.codes + (row + e) * a.codes_stride + column / 2,
                        even.codes[e] | shift_left(code, 4));
    }
  }
  return true;
}

/// A tile of whole blocks, or false where something is not finite.
template <Draw kDraw, bool kValues, bool kCodes>
TENON_INLINE bool quantize_tile(const QuantizeArgs<Bf16>& a, std::int64_t row, std::int64_t column, I& met) {
  alignas(64) EvenColumns even;
  return quantize_half<0, kDraw, kValues, kCodes>(a, row, column, even, met) &&
         quantize_half<1, kDraw, kValues, kCodes>(a, row, column, even, met);
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
bool quantize_tiles(const QuantizeArgs<Bf16>& a, std::int64_t row, std::int64_t columns, I& met) {
  for (std::int64_t column = 0; column < columns; column += kPairColumns) {
    const bool done = a.codes == nullptr    ? quantize_tile<kDraw, true, false>(a, row, column, met)
                      : a.values == nullptr ? quantize_tile<kDraw, false, true>(a, row, column, met)
                                            : quantize_tile<kDraw, true, true>(a, row, column, met);
    if (!done) return false;
  }
  return true;
}

/// Largest magnitudes of 16 rows and 32 columns.
TENON_INLINE I largest_of_tile(const Bf16* x, std::int64_t stride) {
  F v[kLanes];
  sum_half<0>(x, stride, v);
  const I even = largest_rotated(v);
  sum_half<1>(x, stride, v);
  return max_magnitude(even, largest_rotated(v));
}

/// E2M1 by code.
alignas(64) constexpr float kE2M1Values[kLanes] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// 32 columns from 16 bytes.
TENON_INLINE void decode_pairs(const std::uint8_t* codes, F table, F even_scale, F odd_scale, Bf16* values) {
  const I bytes = lanes_of_bytes(codes);
  const F even = look_up(table, bytes) * even_scale,
          odd = look_up(table, shift_right_logical(bytes, 4)) * odd_scale;
  store_words(values, bits_of(odd) | shift_right_logical(bits_of(even), 16));
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
  const F table = load(kE2M1Values);
  for (std::int64_t first = 0; first < a.rows; first += a.block_rows) {
    const std::int64_t end = first + a.block_rows < a.rows ? first + a.block_rows : a.rows;
    const std::uint8_t* scales = a.scales + first / a.block_rows * a.scales_stride;
    for (std::int64_t column = 0; column < columns; column += kPairColumns) {
      F even, odd;
      if (a.block_columns == 1) {
        const I bytes = lanes_of_words(scales + column);
        even = decode(bytes & splat_int(0xff));
        odd = decode(shift_right_logical(bytes, 8));
      } else {
        const std::uint8_t* of_two = scales + column / kLanes;
        even = odd = decode(select(first_lanes(kLanes / 2), splat_int(of_two[0]), splat_int(of_two[1])));
      }
      for (std::int64_t row = first; row < end; ++row)
        decode_pairs(a.codes + row * a.codes_stride + column / 2, table, even, odd,
                     a.values + row * a.values_stride + column);
    }
  }
}

}  // namespace
}  // namespace tenon::kernels
#endif
