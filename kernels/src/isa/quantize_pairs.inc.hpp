// NVFP4 of bfloat16 for registers of 64 bytes: 32 neighbours are one register of words and become two of
// floats, even and odd columns, by a shift and a mask. Blocks 1x16 along rows, rotated blocks 16x1 and their
// decoding; all other calls are left to quantize.inc.hpp, with the same bits.
#pragma once

#include "isa/quantize_draws.inc.hpp"
#include "isa/quantize_lanes.inc.hpp"

#if TENON_SIMD_BYTES == 64
namespace tenon::kernels {
namespace {

/// Columns of a register of words.
constexpr std::int64_t kPairColumns = 2 * kLanes;
/// Columns of the blocks whose scales are found together.
constexpr std::int64_t kRowColumns = kLanes * kLanes;
/// Prefetch distance in elements.
constexpr std::int64_t kAhead = 1024;

TENON_INLINE I load_words(const Bf16* p) {
  I words;
  __builtin_memcpy(&words, p, sizeof words);
  return words;
}
TENON_INLINE void store_words(Bf16* p, I words) {
  __builtin_memcpy(p, &words, sizeof words);
}
/// Words of `n` elements (16 or 32), followed by zeros.
TENON_INLINE I load_words(const Bf16* p, std::int64_t n) {
  const __mmask32 mask = n >= kPairColumns ? 0xffffffffu : 0xffffu;
  return {{(IntPart)_mm512_maskz_loadu_epi16(mask, p)}};
}
TENON_INLINE void store_words(Bf16* p, I words, std::int64_t n) {
  const __mmask32 mask = n >= kPairColumns ? 0xffffffffu : 0xffffu;
  _mm512_mask_storeu_epi16(p, mask, (__m512i)words.v[0]);
}
TENON_INLINE F even_columns(I words) {
  return from_bits(shift_left(words, 16));
}
TENON_INLINE F odd_columns(I words) {
  return from_bits(words & splat_int(-0x10000));
}
/// 16 bytes, 32 bytes in pairs as words, each zero-extended to a lane.
TENON_INLINE I lanes_of_bytes(const void* p) {
  return {{(IntPart)_mm512_maskz_cvtepu8_epi32(__mmask16{0xffff}, _mm_loadu_si128((const __m128i*)p))}};
}
TENON_INLINE I lanes_of_words(const void* p) {
  return {{(IntPart)_mm512_maskz_cvtepu16_epi32(__mmask16{0xffff}, _mm256_loadu_si256((const __m256i*)p))}};
}
TENON_INLINE void store_low_bytes(void* p, I lanes) {
  _mm_storeu_si128((__m128i*)p, _mm512_maskz_cvtepi32_epi8(__mmask16{0xffff}, (__m512i)lanes.v[0]));
}
TENON_INLINE void store_low_words(void* p, I lanes) {
  _mm256_storeu_si256((__m256i*)p, _mm512_maskz_cvtepi32_epi16(__mmask16{0xffff}, (__m512i)lanes.v[0]));
}
/// Lane l = table[index[l] % 16].
TENON_INLINE F look_up(F table, I index) {
  return {{(Part)_mm512_maskz_permutexvar_ps(__mmask16{0xffff}, (__m512i)index.v[0], (__m512)table.v[0])}};
}
/// Bits of `yes` where the mask has ones, else of `no`.
TENON_INLINE I merge_bits(I mask, I yes, I no) {
  return {
      {(IntPart)_mm512_ternarylogic_epi32((__m512i)mask.v[0], (__m512i)yes.v[0], (__m512i)no.v[0], 0xca)}};
}
/// a | (b & c).
TENON_INLINE I or_masked(I a, I b, I c) {
  return {{(IntPart)_mm512_ternarylogic_epi32((__m512i)a.v[0], (__m512i)b.v[0], (__m512i)c.v[0], 0xf8)}};
}
template <int kImmediate>
TENON_INLINE I unpack_quads(I a, I b) {
  const __m512i x = (__m512i)a.v[0], y = (__m512i)b.v[0];
  return {{(IntPart)(kImmediate == 0 ? _mm512_maskz_unpacklo_epi64(__mmask8{0xff}, x, y)
                                     : _mm512_maskz_unpackhi_epi64(__mmask8{0xff}, x, y))}};
}
template <int kImmediate>
TENON_INLINE I shuffle_lanes(I a, I b) {
  return {{(IntPart)_mm512_maskz_shuffle_ps(__mmask16{0xffff}, (__m512)a.v[0], (__m512)b.v[0], kImmediate)}};
}
TENON_INLINE I larger_words(I a, I b) {
  return {{(IntPart)_mm512_maskz_max_epu16(0xffffffffu, (__m512i)a.v[0], (__m512i)b.v[0])}};
}

/// Index of the word of the folded registers below that is the largest of block l.
struct FoldOrder {
  std::int16_t word[2 * kLanes] = {};
};
constexpr FoldOrder fold_order() {
  FoldOrder order;
  for (int block = 0; block < kLanes; ++block) {
    const int reg = block / 2;
    order.word[2 * block + 1] =
        static_cast<std::int16_t>(block % 2 * 16 + (reg < 4 ? 2 * reg : 2 * (reg - 4) + 1));
  }
  return order;
}
alignas(64) constexpr FoldOrder kFoldOrder = fold_order();

/// Largest magnitudes, as bits of floats, of 16 blocks of 16 words, two in a register.
TENON_INLINE I largest_of_blocks(const I (&words)[8]) {
  I quads[4], pairs[2];
  for (int i = 0; i < 4; ++i) {
    const I low = words[2 * i] & splat_int(0x7fff7fff), high = words[2 * i + 1] & splat_int(0x7fff7fff);
    quads[i] = larger_words(unpack_quads<0>(low, high), unpack_quads<1>(low, high));
  }
  for (int i = 0; i < 2; ++i)
    pairs[i] = larger_words(shuffle_lanes<0x88>(quads[2 * i], quads[2 * i + 1]),
                            shuffle_lanes<0xdd>(quads[2 * i], quads[2 * i + 1]));
  const I lower = splat_int(0xffff);
  const I words_of_all = larger_words(merge_bits(lower, pairs[0], shift_left(pairs[1], 16)),
                                      merge_bits(lower, shift_right_logical(pairs[0], 16), pairs[1]));
  const __m512i folded = (__m512i)words_of_all.v[0];
  const I turned{{(IntPart)_mm512_maskz_shuffle_i32x4(__mmask16{0xffff}, folded, folded, 0xb1)}};
  __m512i order;
  __builtin_memcpy(&order, &kFoldOrder, sizeof order);
  return {{(IntPart)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, order,
                                                   (__m512i)larger_words(words_of_all, turned).v[0])}};
}

/// A magnitude on the grid of E2M1, and its code in the low three bits.
struct OnMesh {
  F value;
  I code;
};
/// Grid<kE2M1> in fewer steps: with the binade as a float e (1, 2 or 4) steps are e / 2, and a + (2^22 + 1) e
/// has whole steps in the last place. That one e is two steps, which make the low bits of the result, the
/// binade's added, the code. a is below 7, with draws at most 6.
template <Draw kDraw>
TENON_INLINE OnMesh on_grid(F a, I draw) {
  const auto binade = [](F x) TENON_BODY { return Grid<Element::kE2M1>::exponent_of(x); };
  constexpr float kShift = 0x1p22f + 1;
  I e = binade(a);
  F moved;
  if constexpr (kDraw == Draw::kNone) {
    moved = mul_add(from_bits(e), splat(kShift), a);
  } else {
    // draw / 256 of a step.
    const F drawn = mul_add(to_float_lanes(draw), from_bits(e - splat_int(9 << 23)), a);
    e = binade(drawn);
    moved = {{(Part)_mm512_maskz_fmadd_round_ps(__mmask16{0xffff}, (__m512)e.v[0], (__m512)splat(kShift).v[0],
                                                (__m512)drawn.v[0], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)}};
  }
  return {mul_add(from_bits(e), splat(-kShift), moved), bits_of(moved) + shift_right_logical(e, 22)};
}

/// Bytes of 32 codes in the low bytes of lanes; signs are those of `words`.
TENON_INLINE I packed_codes(I even, I odd, I words) {
  const I magnitudes = merge_bits(splat_int(7), even, shift_left(odd, 4));
  const I signs = merge_bits(splat_int(8), shift_right_logical(words, 12), shift_right_logical(words, 24));
  return merge_bits(splat_int(0x88), signs, magnitudes);
}

/// 32 columns in two blocks, whose scales are in halves of the lanes.
template <Draw kDraw, bool kClamp, bool kCodes>
TENON_INLINE I quantize_words(I words, F encode, F decode, I draws, std::uint8_t* codes) {
  const I magnitude = words & splat_int(0x7fff7fff);
  F even = even_columns(magnitude) * encode, odd = odd_columns(magnitude) * encode;
  if constexpr (kClamp) {
    even = min(even, splat(Grid<Element::kE2M1>::kLargest));
    odd = min(odd, splat(Grid<Element::kE2M1>::kLargest));
  }
  const OnMesh low = on_grid<kDraw>(even, draws & splat_int(0xff));
  const OnMesh high = on_grid<kDraw>(odd, shift_right_logical(draws, 8));
  if constexpr (kCodes) store_low_bytes(codes, packed_codes(low.code, high.code, words));
  const I values = bits_of(high.value * decode) | shift_right_logical(bits_of(low.value * decode), 16);
  return or_masked(values, words, splat_int(static_cast<std::int32_t>(0x80008000u)));
}

/// The 16 bytes of words 0 to 3 of each lane.
TENON_INLINE void store_draws(const Words& words, std::uint8_t* out) {
  const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  for (int p = 0; p < kWideParts; ++p, out += 2 * sizeof(WidePart)) {
    const auto low = (__m512i)((words.w[0].v[p] & 0xffffffffu) | words.w[1].v[p] << 32);
    const auto high = (__m512i)((words.w[2].v[p] & 0xffffffffu) | words.w[3].v[p] << 32);
    const __m512i lower = _mm512_maskz_permutex2var_epi64(__mmask8{0xff}, low, first, high);
    const __m512i upper = _mm512_maskz_permutex2var_epi64(__mmask8{0xff}, low, second, high);
    __builtin_memcpy(out, &lower, sizeof lower);
    __builtin_memcpy(out + sizeof lower, &upper, sizeof upper);
  }
}

/// Up to 16 blocks of a row; `count` columns, a multiple of 16.
template <Draw kDraw, bool kClamp, bool kCodes, bool kWhole>
TENON_INLINE void quantize_blocks(const QuantizeArgs<Bf16>& a, const I (&words)[8], std::int64_t row,
                                  std::int64_t column, std::int64_t count, const BlockScales& scales) {
  alignas(64) std::uint8_t draws[kRowColumns];
  if constexpr (kDraw != Draw::kNone) {
    Words drawn;
    draw_words(stream_of(a), (a.origin_column + column) / kLanes, 1, a.origin_row + row, 0, 0, drawn);
    store_draws(drawn, draws);
  }
  Bf16* values = a.values == nullptr ? nullptr : a.values + row * a.values_stride + column;
  std::uint8_t* codes = kCodes ? a.codes + row * a.codes_stride + column / 2 : nullptr;
  I block = shift_right_logical(lanes_from(0), 3);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i, block = block + splat_int(2)) {
    if (!kWhole && i * kPairColumns >= count) break;
    const std::int64_t n = kWhole ? kPairColumns : count - i * kPairColumns;
    I drawn = {};
    if constexpr (kDraw != Draw::kNone) drawn = lanes_of_words(draws + i * kPairColumns);
    alignas(16) std::uint8_t bytes[kLanes];
    const I result = quantize_words<kDraw, kClamp, kCodes>(words[i], look_up(scales.encode, block),
                                                           look_up(scales.decode, block), drawn, bytes);
    if constexpr (kCodes)
      __builtin_memcpy(codes + i * kLanes, bytes, n >= kPairColumns ? kLanes : kLanes / 2);
    if (values == nullptr) continue;
    if (kWhole)
      store_words(values + i * kPairColumns, result);
    else
      store_words(values + i * kPairColumns, result, n);
  }
}

/// Up to 16 blocks 1x16 of a row, or false where something is not finite.
template <Draw kDraw, bool kCodes, bool kWhole>
TENON_INLINE bool quantize_row_part(const QuantizeArgs<Bf16>& a, std::int64_t row, std::int64_t column,
                                    std::int64_t count, I& met) {
  const Bf16* x = a.x + row * a.stride + column;
  I words[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const std::int64_t at = i * kPairColumns;
    if constexpr (kWhole) {
      words[i] = load_words(x + at);
      __builtin_prefetch(x + at + kAhead);
    } else {
      words[i] = at < count ? load_words(x + at, count - at) : I{};
    }
  }
  const I amax = largest_of_blocks(words);
  met = max_magnitude(met, amax);
  if (_mm512_cmpge_epi32_mask((__m512i)amax.v[0], (__m512i)splat_int(kExponentBits).v[0]) != 0) return false;
  const BlockScales scales = two_level_scales(amax, a.tensor);
  if (a.scales != nullptr) {
    std::uint8_t bytes[kLanes];
    store_low_bytes(bytes, scales.bits);
    __builtin_memcpy(a.scales + row * a.scales_stride + column / kLanes, bytes, count / kLanes);
  }
  // Below 7 the nearest is at most 6 by itself.
  const F largest = from_bits(amax) * scales.encode;
  if (kDraw != Draw::kNone ||
      _mm512_cmp_ps_mask((__m512)largest.v[0], (__m512)splat(7.0f).v[0], _CMP_NLT_UQ) != 0)
    quantize_blocks<kDraw, true, kCodes, kWhole>(a, words, row, column, count, scales);
  else
    quantize_blocks<kDraw, false, kCodes, kWhole>(a, words, row, column, count, scales);
  return true;
}

template <Draw kDraw, bool kCodes>
bool quantize_pairs_along(const QuantizeArgs<Bf16>& a, I& met) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    std::int64_t column = 0;
    for (; column + kRowColumns <= a.columns; column += kRowColumns)
      if (!quantize_row_part<kDraw, kCodes, true>(a, row, column, kRowColumns, met)) return false;
    if (column < a.columns &&
        !quantize_row_part<kDraw, kCodes, false>(a, row, column, a.columns - column, met))
      return false;
  }
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
#endif
