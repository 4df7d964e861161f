// NVFP4 of bfloat16 in pairs of neighbouring columns (quantize_words.inc.hpp): blocks 1x16 along rows.
// Rotated blocks 16x1 and decoding: quantize_pairs_down.inc.hpp. All other calls are left to
// quantize.inc.hpp, with the same bits.
#pragma once

#include "isa/quantize_words.inc.hpp"

namespace tenon::kernels {
namespace {

/// Prefetch distance in elements.
constexpr std::int64_t kAhead = 1024;

/// Magnitudes on the grid of E2M1, and their codes in the low three bits.
struct OnMesh {
  Part value;
  IntPart code;
};
/// Grid<kE2M1> in fewer steps: with the binade as a float e (1, 2 or 4) steps are e / 2, and a + (2^22 + 1) e
/// has whole steps in the last place. That one e is two steps, which make the low bits of the result, the
/// binade's added, the code. a is below 7, with draws at most 6.
template <Draw kDraw>
TENON_INLINE OnMesh on_grid(Part a, IntPart draw) {
  const auto binade = [](Part x) TENON_BODY {
    return larger_bits((IntPart)x & splat_part(kExponentBits), splat_part(Grid<Element::kE2M1>::kSmallest));
  };
  const Part shift = splat_part(0x1p22f + 1), back = splat_part(-0x1p22f - 1);
  IntPart e = binade(a);
  Part moved;
  if constexpr (kDraw == Draw::kNone) {
    moved = mul_add_part((Part)e, shift, a);
  } else {
    // draw / 256 of a step.
    const auto scale = (Part)add_bits(e, splat_part(-(9 << 23)));
    const Part drawn = mul_add_part(__builtin_convertvector(draw, Part), scale, a);
    e = binade(drawn);
#if TENON_SIMD_BYTES == 64
    moved = (Part)_mm512_maskz_fmadd_round_ps(__mmask16{0xffff}, (__m512)e, (__m512)shift, (__m512)drawn,
                                              _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#else
    // Rounded to nearest, and a step less where that was up.
    const Part nearest = mul_add_part((Part)e, shift, drawn);
    const auto up = (IntPart)(drawn < mul_add_part((Part)e, back, nearest));
    moved = (Part)add_bits((IntPart)nearest, up);
#endif
  }
  return {mul_add_part((Part)e, back, moved), add_bits((IntPart)moved, right_logical(e, 22))};
}

/// Bytes of the codes of neighbours in the low bytes of lanes; signs are those of `words`.
TENON_INLINE IntPart packed_codes(IntPart even, IntPart odd, IntPart words) {
  const IntPart magnitudes = merge_bits(splat_part(7), even, left(odd, 4));
  const IntPart signs = merge_bits(splat_part(8), right_logical(words, 12), right_logical(words, 24));
  return merge_bits(splat_part(0x88), signs, magnitudes);
}

/// A register of columns, with the scales of their blocks.
template <Draw kDraw, bool kClamp, bool kCodes>
TENON_INLINE IntPart quantize_words(IntPart words, Part encode, Part decode, IntPart draws,
                                    std::uint8_t* codes) {
  const IntPart magnitude = words & splat_part(0x7fff7fff);
  Part even = even_columns(magnitude) * encode, odd = odd_columns(magnitude) * encode;
  if constexpr (kClamp) {
    even = at_most(even, splat_part(Grid<Element::kE2M1>::kLargest));
    odd = at_most(odd, splat_part(Grid<Element::kE2M1>::kLargest));
  }
  const OnMesh low = on_grid<kDraw>(even, draws & splat_part(0xff));
  const OnMesh high = on_grid<kDraw>(odd, right_logical(draws, 8));
  if constexpr (kCodes) store_low_bytes(codes, packed_codes(low.code, high.code, words));
  const IntPart values = (IntPart)(high.value * decode) | right_logical((IntPart)(low.value * decode), 16);
  return or_masked(values, words, splat_part(static_cast<std::int32_t>(0x80008000u)));
}

/// Up to 16 blocks of a row, whose register i is words(i); `count` columns, a multiple of 16.
template <Draw kDraw, bool kClamp, bool kCodes, bool kWhole, class Registers>
TENON_INLINE void quantize_blocks(const QuantizeArgs<Bf16>& a, const Stream& stream, Registers words,
                                  std::int64_t row, std::int64_t column, std::int64_t count,
                                  const BlockScales& scales) {
  alignas(64) std::uint8_t draws[kRowColumns];
  if constexpr (kDraw != Draw::kNone) {
    Words drawn;
    draw_along(stream, (a.origin_column + column) / kLanes, a.origin_row + row, 0, drawn);
    store_draws(drawn, draws);
  }
  Bf16* values = a.values == nullptr ? nullptr : a.values + row * a.values_stride + column;
  std::uint8_t* codes = kCodes ? a.codes + row * a.codes_stride + column / 2 : nullptr;
  const OfColumns encode(scales.encode), decode(scales.decode);
  OfColumns::Register columns = OfColumns::first();
  const auto part = [&](int i) TENON_BODY {
    const std::int64_t at = i * kPartColumns;
    // The last register of a row may be half filled.
    const std::int64_t n =
        kWhole || kPartColumns <= kLanes || count - at >= kPartColumns ? kPartColumns : kLanes;
    IntPart drawn = {};
    if constexpr (kDraw != Draw::kNone) drawn = part_of_words(draws + at);
    alignas(16) std::uint8_t bytes[kPartLanes];
    const IntPart result =
        quantize_words<kDraw, kClamp, kCodes>(words(i), encode.at(columns), decode.at(columns), drawn, bytes);
    columns = OfColumns::after(columns);
    if constexpr (kCodes) __builtin_memcpy(codes + at / 2, bytes, n / 2);
    if (values == nullptr) return;
    if (kWhole || n == kPartColumns)
      store_words(values + at, result);
    else
      __builtin_memcpy(values + at, &result, kLanes * sizeof(Bf16));
  };
  const int parts = kWhole ? kRowParts : static_cast<int>((count + kPartColumns - 1) / kPartColumns);
#pragma GCC unroll 1
  for (int i = 0; i < parts; ++i) part(i);
}

/// Bits of the largest number below 7.
constexpr std::int32_t kBelowSeven = 0x40dfffff;

/// What rounds up to 16 blocks 1x16 of a row.
struct PartScales {
  BlockScales blocks;
  bool clamps;
};

/// Finds and stores the scales of `count` columns at (row, column), whose register i is words(i); false where
/// something is not finite.
template <class Registers>
TENON_INLINE bool scale_part(const QuantizeArgs<Bf16>& a, Registers words, std::int64_t row,
                             std::int64_t column, std::int64_t count, I& met, PartScales& scales) {
  const I amax = largest_of_blocks(words);
  met = max_magnitude(met, amax);
  if (any_beyond(amax, kExponentBits - 1)) return false;
  scales.blocks = two_level_scales(amax, a.tensor);
  // Below 7 the nearest is at most 6 by itself.
  scales.clamps = any_beyond(bits_of(from_bits(amax) * scales.blocks.encode), kBelowSeven);
  if (a.scales != nullptr) {
    alignas(16) std::uint8_t bytes[kLanes];
    for (int p = 0; p < kParts; ++p) store_low_bytes(bytes + p * kPartLanes, scales.blocks.bits.v[p]);
    __builtin_memcpy(a.scales + row * a.scales_stride + column / kLanes, bytes, count / kLanes);
  }
  return true;
}

template <Draw kDraw, bool kCodes, bool kWhole, class Registers>
TENON_INLINE void quantize_part(const QuantizeArgs<Bf16>& a, const Stream& stream, Registers words,
                                std::int64_t row, std::int64_t column, std::int64_t count,
                                const PartScales& scales) {
  if (kDraw != Draw::kNone || scales.clamps)
    quantize_blocks<kDraw, true, kCodes, kWhole>(a, stream, words, row, column, count, scales.blocks);
  else
    quantize_blocks<kDraw, false, kCodes, kWhole>(a, stream, words, row, column, count, scales.blocks);
}

/// The columns from `column` on, fewer than kRowColumns.
template <Draw kDraw, bool kCodes>
TENON_INLINE bool quantize_rest(const QuantizeArgs<Bf16>& a, const Stream& stream, std::int64_t row,
                                std::int64_t column, I& met) {
  const std::int64_t count = a.columns - column;
  alignas(64) Bf16 padded[kRowColumns];
  __builtin_memcpy(padded, a.x + row * a.stride + column, count * sizeof(Bf16));
  __builtin_memset(padded + count, 0, (kRowColumns - count) * sizeof(Bf16));
  const auto words = [&](int i) TENON_BODY { return load_words(padded + i * kPartColumns); };
  PartScales scales;
  if (!scale_part(a, words, row, column, count, met, scales)) return false;
  quantize_part<kDraw, kCodes, false>(a, stream, words, row, column, count, scales);
  return true;
}

/// False where something is not finite. The scales of a part are found before the part ahead of it is
/// rounded: they are one long chain of steps, which then runs beside work that does not wait for it.
template <Draw kDraw, bool kCodes>
bool quantize_pairs_along(const QuantizeArgs<Bf16>& a, I& largest) {
  const Stream stream = stream_of<kDraw>(a);
  const std::int64_t whole = a.columns / kRowColumns * kRowColumns;
  I met = largest;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const Bf16* const x = a.x + row * a.stride;
    // So many registers do not fit: they are loaded twice.
    const auto words_at = [&](std::int64_t column) TENON_BODY {
      return [first = x + column](int i) TENON_BODY { return load_words(first + i * kPartColumns); };
    };
    const auto scale = [&](std::int64_t column, PartScales& scales) TENON_BODY {
      prefetch_lines(x + column + kAhead, kRowColumns);
      return scale_part(a, words_at(column), row, column, kRowColumns, met, scales);
    };
    PartScales scales = {}, next;
    if (whole > 0 && !scale(0, scales)) return false;
    for (std::int64_t column = 0; column < whole; column += kRowColumns, scales = next) {
      if (column + kRowColumns < whole && !scale(column + kRowColumns, next)) return false;
      quantize_part<kDraw, kCodes, true>(a, stream, words_at(column), row, column, kRowColumns, scales);
    }
    if (whole < a.columns && !quantize_rest<kDraw, kCodes>(a, stream, row, whole, met)) return false;
  }
  largest = met;
  return true;
}

/// Rows without gaps are one long row of consecutive blocks.
TENON_INLINE QuantizeArgs<Bf16> in_one_row(const QuantizeArgs<Bf16>& a) {
  QuantizeArgs<Bf16> row = a;
  const bool whole = a.stride == a.columns && (a.values == nullptr || a.values_stride == a.columns) &&
                     (a.codes == nullptr || a.codes_stride * 2 == a.columns) &&
                     (a.scales == nullptr || a.scales_stride * kLanes == a.columns);
  if (!whole || a.stochastic) return row;
  row.columns = a.rows * a.columns;
  row.rows = a.rows == 0 ? 0 : 1;
  return row;
}

TENON_INLINE void raise_magnitude(const QuantizeArgs<Bf16>& a, I met) {
  if (a.magnitude == nullptr) return;
  const auto largest = static_cast<std::uint32_t>(largest_lane(met));
  if (*a.magnitude < largest) *a.magnitude = largest;
}

TENON_INLINE bool in_pairs_along(const QuantizeArgs<Bf16>& a) {
  return a.element == Element::kE2M1 && a.scaling == Scaling::kTwoLevel && a.block_rows == 1 &&
         a.block_columns == kLanes && a.columns % kLanes == 0 && (a.codes == nullptr || a.packed);
}
template <Draw kDraw>
bool quantize_pairs_along(const QuantizeArgs<Bf16>& a) {
  I met = {};
  const QuantizeArgs<Bf16> row = in_one_row(a);
  const bool done = a.codes == nullptr ? quantize_pairs_along<kDraw, false>(row, met)
                                       : quantize_pairs_along<kDraw, true>(row, met);
  if (done) raise_magnitude(a, met);
  return done;
}

}  // namespace
}  // namespace tenon::kernels
