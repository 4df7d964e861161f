// Scales of block-scaled formats, in the order of operations that fixes every bit, and their layout in
// memory; for host and device. NVFP4: arXiv 2509.25149 appendix B in the order of TransformerEngine's
// kernels. MX: the rules FLOOR, CEIL, EVEN and RCEIL as torchao names them. FP8 with float scales:
// TransformerEngine's current and block scaling. Every operation is one IEEE float operation; nothing may be
// fused or reordered.
#pragma once

#include <tenon/kernels/formats.hpp>
#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

inline constexpr float kScaleTop = 448.0f;       ///< largest E4M3
inline constexpr float kScaleTopOfSix = 256.0f;  ///< four over six: leaves room for 1.5 times as much
inline constexpr float kSixth = 1.0f / 6.0f;

TENON_BOTH constexpr bool is_positive_finite(float x) noexcept {
  return std::bit_cast<std::uint32_t>(x) - 1u < kInfinityBits - 1u;
}

/// NVFP4, from the largest magnitude: s_enc = 6 top / amax. Zero and infinity yield 1; NaN stays NaN.
TENON_BOTH constexpr TensorScale two_level_scale(float amax, float top = kScaleTop) noexcept {
  TensorScale scale;
  if (magnitude_bits(amax) > kInfinityBits) {
    scale.encode = amax;
  } else if (is_positive_finite(amax)) {
    const float quotient = 6.0f * top / amax;
    scale.encode = quotient > kFloatMax ? kFloatMax : quotient;
  }
  scale.decode = 1.0f / scale.encode;
  scale.block = scale.encode * kSixth;
  return scale;
}

/// FP8 with one scale: S = largest / amax / 2^margin; 1 where amax is 0, infinite or NaN. Delayed scaling
/// passes the largest amax of its history.
TENON_BOTH constexpr TensorScale tensor_scale(float amax, Element element, int margin = 0) noexcept {
  TensorScale scale;
  if (is_positive_finite(amax)) {
    const auto shrink = std::bit_cast<float>(static_cast<std::uint32_t>(127 - margin) << 23);
    const float quotient = layout_of(element).largest / amax * shrink;
    scale.encode = quotient > kFloatMax ? kFloatMax : quotient;
  }
  scale.decode = 1.0f / scale.encode;
  return scale;
}

/// Delayed scaling: shifts the history by one place, drops the oldest, and puts `amax` first. Returns the
/// largest; an amax that is not finite is left out.
TENON_BOTH constexpr float roll_amax(float* history, int length, float amax) noexcept {
  float largest = 0.0f;
  for (int i = length - 1; i >= 0; --i) {
    history[i] = i > 0 ? history[i - 1] : is_positive_finite(amax) ? amax : 0.0f;
    largest = history[i] > largest ? history[i] : largest;
  }
  return largest;
}

/// NVFP4: S_b = e4m3(amax_b k). No lower clamp; a NaN stays NaN so that decoded values show it.
TENON_BOTH constexpr std::uint8_t two_level_block(float amax, const TensorScale& tensor) noexcept {
  const float scaled = amax * tensor.block;
  return encode(scaled > kFloatMax ? kFloatMax : scaled, Element::kE4M3);
}

/// NVFP4, four over six: S_b that maps the block's amax to 6, or to 4 (`four`). Base (amax_b / 6) s_enc.
TENON_BOTH constexpr std::uint8_t four_over_six_block(float amax, const TensorScale& tensor,
                                                      bool four) noexcept {
  const float base = amax / 6.0f * tensor.encode;
  const float scaled = four ? 1.5f * base : base;
  return encode(scaled > kScaleTop ? kScaleTop : scaled, Element::kE4M3);
}

/// NVFP4: e_b = 1 / (S_b s_dec), the factor of elements; S_b = 0 yields the largest float.
TENON_BOTH constexpr float two_level_encode(std::uint8_t block, const TensorScale& tensor) noexcept {
  const float product = decode(block, Element::kE4M3) * tensor.decode;
  if (product == 0.0f) return kFloatMax;
  const float quotient = 1.0f / product;
  return quotient > kFloatMax ? kFloatMax : quotient;
}

/// NVFP4: the value that is rounded to E2M1. The clamp keeps NaN.
TENON_BOTH constexpr float clamp6(float x) noexcept {
  return x > 6.0f ? 6.0f : x < -6.0f ? -6.0f : x;
}

/// MX: E8M0 code of the scale of a block with this amax; NaN if it is not finite. All rules are exact, no
/// float is rounded:
///   floor     2^(floor(log2 amax) - emax): the largest elements may saturate
///   ceil      2^(ceil(log2 amax) - emax)
///   even      floor of amax with its mantissa rounded to the element's, half up
///   round up  2^ceil(log2(amax / largest)): never saturates
TENON_BOTH constexpr std::uint8_t power_scale(float amax, Element element, PowerRule rule) noexcept {
  const ElementLayout layout = layout_of(element);
  std::uint32_t bits = magnitude_bits(amax);
  if (bits >= kInfinityBits) return kE8m0Nan;
  if (rule == PowerRule::kEven) bits += 1u << (22 - layout.mantissa);
  const std::uint32_t fraction = bits & 0x7fffffu;
  int code = static_cast<int>(bits >> 23) - layout.largest_exponent;
  if (rule == PowerRule::kCeil && fraction > 0) code += 1;
  if (rule == PowerRule::kRoundUp && fraction > (std::bit_cast<std::uint32_t>(layout.largest) & 0x7fffffu))
    code += 1;
  return static_cast<std::uint8_t>(code < 0 ? 0 : code > kE8m0Largest ? kE8m0Largest : code);
}

/// Block FP8: S = largest / amax_b, at most `input_largest` (the largest value of the input's type); 1 where
/// amax_b is 0, infinite or NaN.
TENON_BOTH constexpr float float_block_encode(float amax, Element element, float input_largest) noexcept {
  if (!is_positive_finite(amax)) return 1.0f;
  const float quotient = layout_of(element).largest / amax;
  return quotient > kFloatMax ? input_largest : quotient;
}

// The layout in which FP4 and MX products of Blackwell GPUs read block scales: [outer, inner] bytes in tiles
// of 128 x 4, within a tile 32 x (4 x 4) (cuBLAS "VEC16_UE4M3", torchao's to_blocked). Padding is zero.
// Swizzle after communication: swizzled shards cannot be joined.

TENON_BOTH constexpr std::int64_t swizzled_outer(std::int64_t outer) noexcept {
  return (outer + 127) / 128 * 128;
}
TENON_BOTH constexpr std::int64_t swizzled_inner(std::int64_t inner) noexcept {
  return (inner + 3) / 4 * 4;
}

/// Byte offset of scale (o, i) with `inner` scales in a row.
TENON_BOTH constexpr std::int64_t swizzled_offset(std::int64_t o, std::int64_t i,
                                                  std::int64_t inner) noexcept {
  return ((o / 128) * swizzled_inner(inner) + (i / 4) * 4) * 128 + (o % 32) * 16 + (o % 128) / 32 * 4 + i % 4;
}

/// `out` has swizzled_outer(outer) * swizzled_inner(inner) bytes; all are written.
constexpr void swizzle_scales(const std::uint8_t* scales, std::int64_t outer, std::int64_t inner,
                              std::uint8_t* out) noexcept {
  for (std::int64_t o = 0; o < swizzled_outer(outer); ++o)
    for (std::int64_t i = 0; i < swizzled_inner(inner); ++i)
      out[swizzled_offset(o, i, inner)] = o < outer && i < inner ? scales[o * inner + i] : std::uint8_t{0};
}

constexpr void unswizzle_scales(const std::uint8_t* swizzled, std::int64_t outer, std::int64_t inner,
                                std::uint8_t* scales) noexcept {
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) scales[o * inner + i] = swizzled[swizzled_offset(o, i, inner)];
}

}  // namespace tenon::kernels
