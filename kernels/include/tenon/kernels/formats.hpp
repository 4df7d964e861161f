// Number formats of at most 8 bits, one element at a time: E2M1, E2M3, E3M2, E4M3, E5M2 and the scale E8M0.
// This is the definition, for host and device; vector kernels are tested against it bit for bit. Sources: OCP
// Microscaling 1.0, OCP FP8, and where they leave cases open (NaN, infinity, saturation) CUDA's cuda_fp4.h,
// cuda_fp6.h and cuda_fp8.h. Rounding to nearest, ties to even, unless a name says otherwise.
#pragma once

#include <bit>
#include <tenon/kernels/quantize.hpp>

namespace tenon::kernels {

/// Layout of an element: sign, exponent, mantissa from the top of its `bits` lowest bits.
struct ElementLayout {
  int bits;
  int mantissa;               ///< explicit mantissa bits
  int bias;                   ///< of the exponent; the smallest normal is 2^(1 - bias)
  int largest_exponent;       ///< of the largest finite value ("emax" of OCP Microscaling)
  std::uint8_t largest_code;  ///< of the largest finite value
  std::uint8_t overflow;      ///< code of a value beyond it when not saturating; 0 = always saturates
  std::uint8_t nan;           ///< code of NaN; 0 = none, NaN becomes the largest value, positive
  float largest;
};

TENON_BOTH constexpr ElementLayout layout_of(Element element) noexcept {
  switch (element) {
    case Element::kE2M1:
      return {4, 1, 1, 2, 0x07, 0, 0, 6.0f};
    case Element::kE2M3:
      return {6, 3, 1, 2, 0x1f, 0, 0, 7.5f};
    case Element::kE3M2:
      return {6, 2, 3, 4, 0x1f, 0, 0, 28.0f};
    case Element::kE4M3:
      return {8, 3, 7, 8, 0x7e, 0x7f, 0x7f, 448.0f};
    case Element::kE5M2:
      break;
  }
  return {8, 2, 15, 15, 0x7b, 0x7c, 0x7e, 57344.0f};
}

enum class Rounding : std::uint8_t { kNearestEven = 0, kTowardZero = 1 };
enum class Overflow : std::uint8_t { kSaturate = 0, kSpecial = 1 };

inline constexpr float kFloatMax = 0x1.fffffep127f;
inline constexpr std::uint32_t kMagnitudeMask = 0x7fffffffu;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;

TENON_BOTH constexpr std::uint32_t magnitude_bits(float x) noexcept {
  return std::bit_cast<std::uint32_t>(x) & kMagnitudeMask;
}

/// A finite magnitude between two neighbouring codes: `below` * 2^shift + `rest` in units of the last place
/// of a float. For any shift beyond 31, `rest` is the whole and 32 stands for it or more in rounding to
/// nearest.
struct Cell {
  std::uint32_t below;  ///< code of the neighbour toward zero, as if exponents went on beyond the largest
  std::uint32_t rest;   ///< distance from it; the cell is 2^shift wide
  int shift;
};

TENON_BOTH constexpr Cell cell_of(std::uint32_t magnitude, const ElementLayout& layout) noexcept {
  const int field = static_cast<int>(magnitude >> 23);
  const std::uint32_t fraction = magnitude & 0x7fffffu;
  const std::uint32_t significand = field == 0 ? fraction : fraction | 0x800000u;
  const int exponent = (field == 0 ? 1 : field) - 127;
  const int smallest = 1 - layout.bias;
  const int at = exponent > smallest ? exponent : smallest;
  const int shift = 23 - layout.mantissa + (at - exponent);
  const std::uint32_t units = shift > 31 ? 0 : significand >> shift;
  // A normal's units carry the implicit bit, which adds one to the exponent field.
  const auto fields = static_cast<std::uint32_t>(at + layout.bias - 1) << layout.mantissa;
  return {fields + units, shift > 31 ? significand : significand - (units << shift), shift};
}

/// The code of a magnitude with its sign.
TENON_BOTH constexpr std::uint8_t with_sign(std::uint32_t code, std::uint32_t sign,
                                            const ElementLayout& layout) noexcept {
  return static_cast<std::uint8_t>(code | sign << (layout.bits - 1));
}

/// Code of a value beyond the largest one.
TENON_BOTH constexpr std::uint8_t encode_beyond(std::uint32_t sign, const ElementLayout& layout,
                                                Overflow overflow) noexcept {
  const bool saturates = overflow == Overflow::kSaturate || layout.overflow == 0;
  return with_sign(saturates ? layout.largest_code : layout.overflow, sign, layout);
}

/// Code of NaN; it keeps its sign where the format has a NaN.
TENON_BOTH constexpr std::uint8_t encode_nan(std::uint32_t sign, const ElementLayout& layout) noexcept {
  return layout.nan == 0 ? layout.largest_code : with_sign(layout.nan, sign, layout);
}

/// Nearest code of x (or, toward zero, the nearest of no larger magnitude). Zeros and values that round to
/// zero keep their sign. kSpecial: values that round beyond the largest one become infinity (E5M2) or NaN
/// (E4M3); formats that have neither saturate always, and toward zero no finite value overflows.
TENON_BOTH constexpr std::uint8_t encode(float x, Element element, Rounding rounding = Rounding::kNearestEven,
                                         Overflow overflow = Overflow::kSaturate) noexcept {
  const ElementLayout layout = layout_of(element);
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) >> 31;
  const std::uint32_t magnitude = magnitude_bits(x);
  if (magnitude > kInfinityBits) return encode_nan(sign, layout);
  if (magnitude == kInfinityBits) return encode_beyond(sign, layout, overflow);
  const Cell cell = cell_of(magnitude, layout);
  if (rounding == Rounding::kTowardZero)
    return with_sign(cell.below < layout.largest_code ? cell.below : layout.largest_code, sign, layout);
  std::uint32_t code = cell.below;
  if (cell.shift < 32) {
    const std::uint32_t half = 1u << (cell.shift - 1);
    code += cell.rest > half || (cell.rest == half && (cell.below & 1u) != 0) ? 1u : 0u;
  }
  return code > layout.largest_code ? encode_beyond(sign, layout, overflow) : with_sign(code, sign, layout);
}

/// Exact.
TENON_BOTH constexpr float decode(std::uint8_t code, Element element) noexcept {
  const ElementLayout layout = layout_of(element);
  const std::uint32_t magnitude = code & ((1u << (layout.bits - 1)) - 1u);
  const std::uint32_t sign = (static_cast<std::uint32_t>(code) >> (layout.bits - 1) & 1u) << 31;
  if (layout.nan != 0 && magnitude > layout.largest_code)
    return std::bit_cast<float>(
        sign | (magnitude == layout.overflow && layout.overflow != layout.nan ? kInfinityBits : 0x7fc00000u));
  const std::uint32_t fraction = magnitude & ((1u << layout.mantissa) - 1u);
  const auto field = static_cast<int>(magnitude >> layout.mantissa);
  if (field == 0) {
    const auto unit =
        std::bit_cast<float>(static_cast<std::uint32_t>(128 - layout.bias - layout.mantissa) << 23);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * unit));
  }
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(field - layout.bias + 127) << 23 |
                              fraction << (23 - layout.mantissa));
}

/// E8M0, the scale 2^(code - 127) without sign, zero or infinity.
inline constexpr std::uint8_t kE8m0Nan = 255;
inline constexpr std::uint8_t kE8m0Largest = 254;

enum class PowerRounding : std::uint8_t { kUp = 0, kTowardZero = 1 };

/// Power of two at or above (below) |x|. Values under 2^-127 and zero become 2^-127; beyond 2^127 the largest
/// code, or NaN with kSpecial.
TENON_BOTH constexpr std::uint8_t encode_e8m0(float x, PowerRounding rounding,
                                              Overflow overflow = Overflow::kSaturate) noexcept {
  const std::uint32_t magnitude = magnitude_bits(x);
  const std::uint8_t beyond = overflow == Overflow::kSaturate ? kE8m0Largest : kE8m0Nan;
  if (magnitude > kInfinityBits) return kE8m0Nan;
  if (magnitude == kInfinityBits) return beyond;
  const std::uint32_t field = magnitude >> 23;
  // 2^-127 is a subnormal float: half of the smallest normal.
  const std::uint32_t exact = field == 0 ? 0x400000u : 0u;
  const std::uint32_t code =
      field + (rounding == PowerRounding::kUp && (magnitude & 0x7fffffu) > exact ? 1u : 0u);
  return code > kE8m0Largest ? beyond : static_cast<std::uint8_t>(code);
}

/// Exact; 2^-127 is a subnormal.
TENON_BOTH constexpr float decode_e8m0(std::uint8_t code) noexcept {
  if (code == kE8m0Nan) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23);
}

/// 1 / decode_e8m0(code), exact: 2^127 ... 2^-127.
TENON_BOTH constexpr float inverse_e8m0(std::uint8_t code) noexcept {
  return code == kE8m0Nan ? decode_e8m0(code) : decode_e8m0(static_cast<std::uint8_t>(kE8m0Largest - code));
}

/// Two E2M1 codes in a byte: element 2i in the low half.
TENON_BOTH constexpr std::uint8_t pack_e2m1(std::uint8_t even, std::uint8_t odd) noexcept {
  return static_cast<std::uint8_t>((even & 15) | odd << 4);
}

/// Packs n codes into n / 2 bytes. Returns false, and writes nothing, if n is odd: half a byte has no meaning
/// of its own.
constexpr bool pack_e2m1(const std::uint8_t* codes, std::int64_t n, std::uint8_t* packed) noexcept {
  if (n % 2 != 0) return false;
  for (std::int64_t i = 0; i < n / 2; ++i) packed[i] = pack_e2m1(codes[2 * i], codes[2 * i + 1]);
  return true;
}

}  // namespace tenon::kernels
