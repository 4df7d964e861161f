// Number formats in 16 lanes: rounding of magnitudes to codes, scales of 16 blocks at once, and the random
// words of 16 groups. All of it accepts finite numbers only, and equals formats.hpp, scales.hpp and
// stochastic.hpp bit for bit there; other values go to the reference (quantize.inc.hpp).
#pragma once

#include <tenon/kernels/formats.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

constexpr std::int32_t kExponentBits = 0x7f800000;
constexpr float kLargestFloat = 0x1.fffffep127f;

/// Larger of two numbers that are not negative, as bits of magnitudes are.
TENON_INLINE I max_magnitude(I a, I b) {
#if TENON_SIMD_BYTES == 64
  return each<I>([&](int p) {
    return (IntPart)_mm512_maskz_max_epi32(__mmask16{0xffff}, (__m512i)a.v[p], (__m512i)b.v[p]);
  });
#elif TENON_SIMD_BYTES == 32
  return each<I>([&](int p) { return (IntPart)_mm256_max_epi32((__m256i)a.v[p], (__m256i)b.v[p]); });
#else
  return select(a < b, b, a);
#endif
}
TENON_INLINE I magnitudes(F x) {
  return bits_of(x) & splat_int(0x7fffffff);
}
TENON_INLINE I shift_right_logical(I a, int bits) {
  return each<I>([&](int p) { return (IntPart)((BitPart)a.v[p] >> bits); });
}
TENON_INLINE I operator^(I a, I b) {
  return each<I>([&](int p) { return a.v[p] ^ b.v[p]; });
}
TENON_INLINE I truncate(F a) {
  return each<I>([&](int p) { return __builtin_convertvector(a.v[p], IntPart); });
}

/// The upper halves of 16 numbers, or of n of them.
TENON_INLINE void store_upper(Bf16* p, I bits) {
  const I upper = shift_right(bits, 16);
  std::int32_t lanes[kLanes];
  __builtin_memcpy(lanes, &upper, sizeof lanes);
  for (int l = 0; l < kLanes; ++l) p[l].bits = static_cast<std::uint16_t>(lanes[l]);
}
TENON_INLINE void store_upper(Bf16* p, I bits, std::int64_t n) {
  if (n == kLanes) return store_upper(p, bits);
  Bf16 narrow[kLanes];
  store_upper(narrow, bits);
  __builtin_memcpy(p, narrow, n * sizeof(Bf16));
}

typedef std::int32_t IntQuad __attribute__((vector_size(16)));
TENON_INLINE IntQuad max_magnitude(IntQuad a, IntQuad b) {
#if TENON_SIMD_BYTES > 16
  return (IntQuad)_mm_max_epi32((__m128i)a, (__m128i)b);
#else
  return a < b ? b : a;
#endif
}
TENON_INLINE IntQuad four_lanes(I a) {
  IntQuad q[4];
  __builtin_memcpy(q, &a, sizeof q);
  return max_magnitude(max_magnitude(q[0], q[2]), max_magnitude(q[1], q[3]));
}
TENON_INLINE std::int32_t largest_lane(I a) {
  const IntQuad four = four_lanes(a);
  const IntQuad two = max_magnitude(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  return max_magnitude(two, __builtin_shufflevector(two, two, 1, 0, 3, 2))[0];
}
/// Lane b = the largest of fours[b].
TENON_INLINE I largest_lanes(const IntQuad (&fours)[kLanes]) {
  IntQuad result[4];
  for (int b = 0; b < 4; ++b) {
    const IntQuad* q = fours + 4 * b;
    const IntQuad low = max_magnitude(__builtin_shufflevector(q[0], q[1], 0, 4, 1, 5),
                                      __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7));
    const IntQuad high = max_magnitude(__builtin_shufflevector(q[2], q[3], 0, 4, 1, 5),
                                       __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7));
    result[b] = max_magnitude(__builtin_shufflevector(low, high, 0, 1, 4, 5),
                              __builtin_shufflevector(low, high, 2, 3, 6, 7));
  }
  I lanes;
  __builtin_memcpy(&lanes, result, sizeof lanes);
  return lanes;
}

/// Code and value of a magnitude.
struct Coded {
  I code;
  F value;
};

template <Element kElement>
struct Grid {
  static constexpr ElementLayout kLayout = layout_of(kElement);
  static constexpr int kMantissa = kLayout.mantissa;
  static constexpr float kLargest = kLayout.largest;
  /// Exponent field of the smallest normal, below which steps are equal.
  static constexpr std::int32_t kSmallest = (128 - kLayout.bias) << 23;

  static TENON_INLINE I exponent_of(F a) {
    return max_magnitude(bits_of(a) & splat_int(kExponentBits), splat_int(kSmallest));
  }
  /// Code of `units` steps at an exponent: the smallest normal is 2^mantissa steps.
  static TENON_INLINE I code_of(I units, I exponent) {
    return units + shift_right(exponent, 23 - kMantissa) - splat_int(kSmallest >> (23 - kMantissa));
  }
  static TENON_INLINE F step_of(I exponent) { return from_bits(exponent - splat_int(kMantissa << 23)); }
  static TENON_INLINE F inverse_step_of(I exponent) {
    return from_bits(splat_int((254 + kMantissa) << 23) - exponent);
  }

  /// Adding 2^23 steps leaves whole steps in the last place, rounded to nearest even. a at most kLargest.
  static TENON_INLINE Coded nearest(F a) {
    const I exponent = exponent_of(a);
    const I shifter = exponent + splat_int((23 - kMantissa) << 23);
    const F moved = a + from_bits(shifter);
    return {code_of(bits_of(moved) - shifter, exponent), moved - from_bits(shifter)};
  }

  /// The 8-bit rule of stochastic.hpp; draw in 0 .. 255. No value below kLargest is moved as far as a step
  /// beyond it.
  static TENON_INLINE Coded stochastic8(F a, I draw) {
    const F moved = a + (to_float_lanes(draw) * splat(0x1p-8f)) * step_of(exponent_of(a));
    const I exponent = exponent_of(moved);
    const I units = truncate(moved * inverse_step_of(exponent));
    return {code_of(units, exponent), to_float_lanes(units) * step_of(exponent)};
  }

  /// The 24-bit rule; draw in 0 .. 2^24 - 1. Up iff f >= 1 - draw / 2^24, all of it exact in float.
  static TENON_INLINE Coded stochastic24(F a, I draw) {
    const I exponent = exponent_of(a);
    const F position = a * inverse_step_of(exponent);
    const I below = truncate(position);
    const F limit = to_float_lanes(splat_int(1 << 24) - draw) * splat(0x1p-24f);
    const I stays = (position - to_float_lanes(below)) < limit;
    const I units = below + splat_int(1) + stays;
    return {code_of(units, exponent), to_float_lanes(units) * step_of(exponent)};
  }
};

enum class Draw { kNone, k8, k24 };
/// Philox counters per group of 16 draws.
template <Draw kDraw>
constexpr std::uint32_t kDrawParts = kDraw == Draw::k24  ? 4
                                     : kDraw == Draw::k8 ? 1
                                                         : 0;

template <Element kElement, Draw kDraw>
TENON_INLINE Coded round_magnitude(F a, I draw) {
  if constexpr (kDraw == Draw::kNone)
    return Grid<kElement>::nearest(a);
  else if constexpr (kDraw == Draw::k8)
    return Grid<kElement>::stochastic8(a, draw);
  else
    return Grid<kElement>::stochastic24(a, draw);
}

/// Scales of 16 blocks (scales.hpp): stored bits, and the factors of elements and of codes.
struct BlockScales {
  F encode, decode;
  I bits;
  bool exact;  ///< code times decode is a bfloat16
};

TENON_INLINE F power_of(I code) {
  return from_bits(select(code == splat_int(0), splat_int(0x00400000), shift_left(code, 23)));
}

template <Element kElement>
TENON_INLINE BlockScales power_scales(I amax, PowerRule rule) {
  constexpr ElementLayout kLayout = layout_of(kElement);
  I bits = amax;
  if (rule == PowerRule::kEven) bits = bits + splat_int(1 << (22 - kLayout.mantissa));
  const I fraction = bits & splat_int(0x7fffff);
  I code = shift_right(bits, 23) - splat_int(kLayout.largest_exponent);
  constexpr auto kFraction =
      static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, kLayout.largest) & 0x7fffffu);
  if (rule == PowerRule::kCeil) code = code - (splat_int(0) < fraction);
  if (rule == PowerRule::kRoundUp) code = code - (splat_int(kFraction) < fraction);
  code = select(code < splat_int(0), splat_int(0), code);
  code = select(splat_int(254) < code, splat_int(254), code);
  return {power_of(splat_int(254) - code), power_of(code), code, false};
}

TENON_INLINE BlockScales two_level_scales(I amax, const TensorScale& tensor) {
  const F scaled = min(from_bits(amax) * splat(tensor.block), splat(Grid<Element::kE4M3>::kLargest));
  const Coded block = Grid<Element::kE4M3>::nearest(scaled);
  // 1 / 0 is infinity, which becomes the largest float like all values that are too large.
  const F encode = min(splat(1.0f) / (block.value * splat(tensor.decode)), splat(kLargestFloat));
  return {encode, block.value, block.code, true};
}

template <Element kElement>
TENON_INLINE BlockScales float_scales(I amax, float input_largest) {
  const F largest = splat(Grid<kElement>::kLargest);
  F encode = largest / from_bits(amax);
  encode = select(splat(kLargestFloat) < encode, splat(input_largest), encode);
  encode = select(amax == splat_int(0), splat(1.0f), encode);
  return {encode, splat(1.0f), splat_int(0), true};
}

}  // namespace
}  // namespace tenon::kernels
