// Registers of neighbouring numbers of 16 bits: a lane holds columns 2 l (low half) and 2 l + 1, and becomes
// two floats by a shift and a mask. Functions of one register (Part), which loops take one after another: a
// loop over all 16 lanes of small registers would not keep its constants in registers.
#pragma once

#include "isa/quantize_draws.inc.hpp"
#include "isa/quantize_lanes.inc.hpp"

namespace tenon::kernels {
namespace {

/// Columns of a register, and of 16 lanes.
constexpr std::int64_t kPartColumns = 2 * kPartLanes, kPairColumns = 2 * kLanes;
/// Columns of the blocks whose scales are found together, and their registers.
constexpr std::int64_t kRowColumns = kLanes * kLanes;
constexpr int kRowParts = kRowColumns / kPartColumns;

TENON_INLINE Part splat_part(float x) {
  return x - Part{};
}
TENON_INLINE IntPart splat_part(std::int32_t x) {
  return x - IntPart{};
}
TENON_INLINE IntPart right_logical(IntPart a, int bits) {
  return (IntPart)((BitPart)a >> bits);
}
TENON_INLINE IntPart left(IntPart a, int bits) {
  return (IntPart)((BitPart)a << bits);
}
TENON_INLINE IntPart add_bits(IntPart a, IntPart b) {
  return (IntPart)((BitPart)a + (BitPart)b);
}
/// Larger of two numbers that are not negative.
TENON_INLINE IntPart larger_bits(IntPart a, IntPart b) {
#if TENON_SIMD_BYTES == 64
  return (IntPart)_mm512_maskz_max_epi32(__mmask16{0xffff}, (__m512i)a, (__m512i)b);
#elif TENON_SIMD_BYTES == 32
  return (IntPart)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
  const IntPart less = a < b;
  return (b & less) | (a & ~less);
#endif
}
TENON_INLINE Part at_most(Part a, Part b) {
#if TENON_SIMD_BYTES == 64
  return (Part)_mm512_maskz_min_ps(__mmask16{0xffff}, (__m512)a, (__m512)b);
#elif TENON_SIMD_BYTES == 32
  return (Part)_mm256_min_ps((__m256)a, (__m256)b);
#else
  const IntPart less = a < b;
  return (Part)(((IntPart)a & less) | ((IntPart)b & ~less));
#endif
}
/// Bits of `yes` where the mask has ones, else of `no`.
TENON_INLINE IntPart merge_bits(IntPart mask, IntPart yes, IntPart no) {
#if TENON_SIMD_BYTES == 64
  return (IntPart)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)yes, (__m512i)no, 0xca);
#else
  return (mask & yes) | (~mask & no);
#endif
}
/// a | (b & c).
TENON_INLINE IntPart or_masked(IntPart a, IntPart b, IntPart c) {
#if TENON_SIMD_BYTES == 64
  return (IntPart)_mm512_ternarylogic_epi32((__m512i)a, (__m512i)b, (__m512i)c, 0xf8);
#else
  return a | (b & c);
#endif
}

TENON_INLINE IntPart load_words(const Bf16* p) {
  IntPart words;
  __builtin_memcpy(&words, p, sizeof words);
  return words;
}
TENON_INLINE void store_words(Bf16* p, IntPart words) {
  __builtin_memcpy(p, &words, sizeof words);
}
TENON_INLINE Part even_columns(IntPart words) {
  return (Part)left(words, 16);
}
TENON_INLINE Part odd_columns(IntPart words) {
  return (Part)(words & splat_part(-0x10000));
}

/// As many bytes, or pairs of them, as there are lanes, each zero-extended to a lane.
TENON_INLINE IntPart part_of_bytes(const std::uint8_t* p) {
#if TENON_SIMD_BYTES == 64
  return (IntPart)_mm512_maskz_cvtepu8_epi32(__mmask16{0xffff}, _mm_loadu_si128((const __m128i*)p));
#elif TENON_SIMD_BYTES == 32
  return (IntPart)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
#else
  IntPart lanes;
  for (int l = 0; l < kPartLanes; ++l) lanes[l] = p[l];
  return lanes;
#endif
}
TENON_INLINE IntPart part_of_words(const std::uint8_t* p) {
#if TENON_SIMD_BYTES == 64
  return (IntPart)_mm512_maskz_cvtepu16_epi32(__mmask16{0xffff}, _mm256_loadu_si256((const __m256i*)p));
#elif TENON_SIMD_BYTES == 32
  return (IntPart)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
#else
  IntPart lanes;
  for (int l = 0; l < kPartLanes; ++l) lanes[l] = p[2 * l] | p[2 * l + 1] << 8;
  return lanes;
#endif
}
/// The low byte, or the two low ones, of each lane.
TENON_INLINE void store_low_bytes(std::uint8_t* p, IntPart lanes) {
#if TENON_SIMD_BYTES == 64
  _mm_storeu_si128((__m128i*)p, _mm512_maskz_cvtepi32_epi8(__mmask16{0xffff}, (__m512i)lanes));
#elif TENON_SIMD_BYTES == 32
  const __m256i low = (__m256i)(lanes & splat_part(0xff));
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storel_epi64((__m128i*)p, _mm_packus_epi16(words, words));
#else
  for (int l = 0; l < kPartLanes; ++l) p[l] = static_cast<std::uint8_t>(lanes[l]);
#endif
}
TENON_INLINE void store_low_words(std::uint8_t* p, IntPart lanes) {
#if TENON_SIMD_BYTES == 64
  _mm256_storeu_si256((__m256i*)p, _mm512_maskz_cvtepi32_epi16(__mmask16{0xffff}, (__m512i)lanes));
#elif TENON_SIMD_BYTES == 32
  const __m256i low = (__m256i)(lanes & splat_part(0xffff));
  _mm_storeu_si128((__m128i*)p,
                   _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
#else
  for (int l = 0; l < kPartLanes; ++l) {
    p[2 * l] = static_cast<std::uint8_t>(lanes[l]);
    p[2 * l + 1] = static_cast<std::uint8_t>(lanes[l] >> 8);
  }
#endif
}

/// True if a lane of bits of magnitudes is larger than `limit`.
TENON_INLINE bool any_beyond(I magnitude, std::int32_t limit) {
#if TENON_SIMD_BYTES == 64
  return _mm512_cmpgt_epi32_mask((__m512i)magnitude.v[0], (__m512i)splat_int(limit).v[0]) != 0;
#elif TENON_SIMD_BYTES == 32
  const I beyond = splat_int(limit) < magnitude;
  return _mm256_movemask_epi8((__m256i)(beyond.v[0] | beyond.v[1])) != 0;
#else
  return largest_lane(magnitude) > limit;
#endif
}

/// Numbers of 16 blocks of a row, spread over the columns of one register after the other.
class OfColumns {
 public:
#if TENON_SIMD_BYTES == 64
  /// The block of each lane: a register has two.
  using Register = IntPart;
  static TENON_INLINE Register first() {
    return IntPart{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  }
  static TENON_INLINE Register after(Register blocks) {
    return blocks + splat_part(2);
  }

  explicit TENON_INLINE OfColumns(F of_blocks) : numbers_(of_blocks.v[0]) {}
  TENON_INLINE Part at(Register blocks) const {
    return (Part)_mm512_maskz_permutexvar_ps(__mmask16{0xffff}, (__m512i)blocks, (__m512)numbers_);
  }

 private:
  Part numbers_;
#else
  using Register = int;
  static TENON_INLINE Register first() {
    return 0;
  }
  static TENON_INLINE Register after(Register i) {
    return i + 1;
  }

  explicit TENON_INLINE OfColumns(F of_blocks) {
    store(numbers_, of_blocks);
  }
  TENON_INLINE Part at(Register i) const {
    return splat_part(numbers_[i * kPartColumns / kLanes]);
  }

 private:
  alignas(64) float numbers_[kLanes];
#endif
};

/// E2M1 of the low four bits of each lane.
TENON_INLINE Part decode_e2m1(IntPart code) {
#if TENON_SIMD_BYTES == 64
  alignas(64) static constexpr float kValues[kLanes] = {
      0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return (Part)_mm512_maskz_permutexvar_ps(__mmask16{0xffff}, (__m512i)code, (__m512)load_part(kValues));
#elif TENON_SIMD_BYTES == 32
  alignas(32) static constexpr float kValues[kPartLanes] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  // The three low bits alone select.
  const auto magnitude = (IntPart)_mm256_permutevar8x32_ps((__m256)load_part(kValues), (__m256i)code);
  return (Part)(magnitude | (left(code, 28) & splat_part(INT32_MIN)));
#else
  // From code 2 on, exponent and mantissa are those of a float with another bias.
  const IntPart magnitude = code & splat_part(7);
  const IntPart normal = add_bits(left(magnitude, 22), splat_part(126 << 23));
  const IntPart half = splat_part(0x3f000000) & (IntPart)(magnitude == splat_part(1));
  const IntPart value = merge_bits((IntPart)(magnitude < splat_part(2)), half, normal);
  return (Part)(value | (left(code, 28) & splat_part(INT32_MIN)));
#endif
}

#if TENON_SIMD_BYTES == 64
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
#endif

/// Largest magnitudes, as bits of floats, of 16 blocks of 16 words; words(i) is register i. Every step halves
/// the number of registers: their words come to lie side by side, and the larger ones stay.
template <class Words>
TENON_INLINE I largest_of_blocks(Words words) {
  const auto magnitude = [&](int i) TENON_BODY { return words(i) & splat_part(0x7fff7fff); };
#if TENON_SIMD_BYTES == 64
  const auto larger = [](__m512i a, __m512i b)
                          TENON_BODY { return _mm512_maskz_max_epu16(0xffffffffu, a, b); };
  constexpr __mmask8 kQuads{0xff};
  constexpr __mmask16 kWords{0xffff};
  __m512i quads[4], pairs[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto low = (__m512i)magnitude(2 * i), high = (__m512i)magnitude(2 * i + 1);
    quads[i] = larger(_mm512_maskz_unpacklo_epi64(kQuads, low, high),
                      _mm512_maskz_unpackhi_epi64(kQuads, low, high));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const auto low = (__m512)quads[2 * i], high = (__m512)quads[2 * i + 1];
    pairs[i] = larger((__m512i)_mm512_maskz_shuffle_ps(kWords, low, high, 0x88),
                      (__m512i)_mm512_maskz_shuffle_ps(kWords, low, high, 0xdd));
  }
  const IntPart lower = splat_part(0xffff), first = (IntPart)pairs[0], second = (IntPart)pairs[1];
  const __m512i folded = larger((__m512i)merge_bits(lower, first, left(second, 16)),
                                (__m512i)merge_bits(lower, right_logical(first, 16), second));
  const __m512i turned = _mm512_maskz_shuffle_i32x4(kWords, folded, folded, 0xb1);
  __m512i order;
  __builtin_memcpy(&order, &kFoldOrder, sizeof order);
  return {{(IntPart)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, order, larger(folded, turned))}};
#elif TENON_SIMD_BYTES == 32
  const auto larger = [](__m256i a, __m256i b) TENON_BODY { return _mm256_max_epu16(a, b); };
  const auto of_two = [&](int i) TENON_BODY {
    const auto low = (__m256i)magnitude(i), high = (__m256i)magnitude(i + 1);
    return (__m256)larger(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
  };
  const auto of_four = [&](int i) TENON_BODY {
    const __m256 low = of_two(i), high = of_two(i + 2);
    return larger((__m256i)_mm256_shuffle_ps(low, high, 0x88), (__m256i)_mm256_shuffle_ps(low, high, 0xdd));
  };
  const auto of_eight = [&](int i) TENON_BODY {  // the first four in low halves
    const __m256i low = of_four(i), high = of_four(i + 4);
    return larger(_mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa),
                  _mm256_blend_epi16(_mm256_srli_epi32(low, 16), high, 0xaa));
  };
  const __m256i first = of_eight(0), second = of_eight(8);
  const __m256i all =
      larger(_mm256_permute2x128_si256(first, second, 0x20), _mm256_permute2x128_si256(first, second, 0x31));
  const __m256i low = _mm256_slli_epi32(all, 16), high = (__m256i)odd_columns((IntPart)all);
  return {{(IntPart)_mm256_permute2x128_si256(low, high, 0x20),
           (IntPart)_mm256_permute2x128_si256(low, high, 0x31)}};
#else
  typedef std::int16_t WordPart __attribute__((vector_size(16)));
  IntQuad fours[kLanes];
  for (int block = 0; block < kLanes; ++block) {
    const auto a = (WordPart)magnitude(2 * block), b = (WordPart)magnitude(2 * block + 1);
    const auto less = (WordPart)(a < b);
    const auto larger = (IntPart)((b & less) | (a & ~less));
    fours[block] = max_magnitude((IntQuad)left(larger, 16), (IntQuad)odd_columns(larger));
  }
  return largest_lanes(fours);
#endif
}

/// Lower halves of 16 lanes.
TENON_INLINE I low_halves(const Wide& words) {
#if TENON_SIMD_BYTES == 64
  alignas(64) static constexpr std::int32_t kEven[kLanes] = {0,  2,  4,  6,  8,  10, 12, 14,
                                                             16, 18, 20, 22, 24, 26, 28, 30};
  __m512i order;
  __builtin_memcpy(&order, kEven, sizeof order);
  return {{(IntPart)_mm512_maskz_permutex2var_epi32(__mmask16{0xffff}, (__m512i)words.v[0], order,
                                                    (__m512i)words.v[1])}};
#elif TENON_SIMD_BYTES == 32
  return each<I>([&](int p) {
    const __m256 mixed = _mm256_shuffle_ps((__m256)words.v[2 * p], (__m256)words.v[2 * p + 1], 0x88);
    return (IntPart)_mm256_permute4x64_epi64((__m256i)mixed, 0xd8);
  });
#else
  return each<I>([&](int p) {
    return __builtin_shufflevector((IntPart)words.v[2 * p], (IntPart)words.v[2 * p + 1], 0, 2, 4, 6);
  });
#endif
}

/// The 16 bytes of words 0 to 3 of each lane.
TENON_INLINE void store_draws(const Words& words, std::uint8_t* out) {
#if TENON_SIMD_BYTES == 64
  const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
#endif
  for (int p = 0; p < kWideParts; ++p, out += 2 * sizeof(WidePart)) {
#if TENON_SIMD_BYTES == 64
    constexpr __mmask16 kHigh{0xaaaa};
    constexpr __mmask8 kAll{0xff};
    const auto join = [&](int w) TENON_BODY {
      return _mm512_mask_shuffle_epi32((__m512i)words.w[w].v[p], kHigh, (__m512i)words.w[w + 1].v[p],
                                       _MM_PERM_CCAA);
    };
    const __m512i low = join(0), high = join(2);
    _mm512_storeu_si512(out, _mm512_maskz_permutex2var_epi64(kAll, low, first, high));
    _mm512_storeu_si512(out + 64, _mm512_maskz_permutex2var_epi64(kAll, low, second, high));
#elif TENON_SIMD_BYTES == 32
    // Words of two lanes side by side, and the lanes 2 apart in the other half.
    const auto join = [&](int w) TENON_BODY {
      return _mm256_shuffle_ps((__m256)words.w[w].v[p], (__m256)words.w[w + 1].v[p], 0x88);
    };
    const __m256 low = join(0), high = join(2);
    const auto even = (__m256i)_mm256_shuffle_ps(low, high, 0x88),
               odd = (__m256i)_mm256_shuffle_ps(low, high, 0xdd);
    _mm_storeu_si128((__m128i*)out, _mm256_castsi256_si128(even));
    _mm_storeu_si128((__m128i*)(out + 16), _mm256_castsi256_si128(odd));
    _mm_storeu_si128((__m128i*)(out + 32), _mm256_extracti128_si256(even, 1));
    _mm_storeu_si128((__m128i*)(out + 48), _mm256_extracti128_si256(odd, 1));
#else
    const WidePart low = (words.w[0].v[p] & 0xffffffffu) | words.w[1].v[p] << 32;
    const WidePart high = (words.w[2].v[p] & 0xffffffffu) | words.w[3].v[p] << 32;
    const WidePart lower = __builtin_shufflevector(low, high, 0, 2);
    const WidePart upper = __builtin_shufflevector(low, high, 1, 3);
    __builtin_memcpy(out, &lower, sizeof lower);
    __builtin_memcpy(out + sizeof lower, &upper, sizeof upper);
#endif
  }
}

}  // namespace
}  // namespace tenon::kernels
