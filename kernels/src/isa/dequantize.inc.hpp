// Codes and scales back to values (QuantizeOps::dequantize), for the combinations of quantize.inc.hpp; codes
// and scales that are not finite go to the reference.
#pragma once

#include "isa/quantize.inc.hpp"

namespace tenon::kernels {
namespace {

/// Values of codes; sets lanes of `beyond` whose code is no finite number.
template <Element kElement>
TENON_INLINE F decode_lanes(I code, I& beyond) {
  constexpr ElementLayout kLayout = layout_of(kElement);
  constexpr int kMantissa = kLayout.mantissa;
  const I magnitude = code & splat_int((1 << (kLayout.bits - 1)) - 1);
  const I sign = shift_left(code & splat_int(1 << (kLayout.bits - 1)), 32 - kLayout.bits);
  beyond = beyond | (splat_int(kLayout.largest_code) < magnitude);
  const I normal = shift_left(magnitude, 23 - kMantissa) + splat_int((127 - kLayout.bias) << 23);
  const F unit = from_bits(splat_int((128 - kLayout.bias - kMantissa) << 23));
  const I subnormal = bits_of(to_float_lanes(magnitude) * unit);
  return from_bits(select(magnitude < splat_int(1 << kMantissa), subnormal, normal) | sign);
}

template <Element kElement, class S>
TENON_INLINE F scale_lanes(const QuantizeArgs<S>& a, I bits, I& beyond) {
  if constexpr (kElement == Element::kE2M1)
    if (a.scaling == Scaling::kTwoLevel) return decode_lanes<Element::kE4M3>(bits, beyond);
  beyond = beyond | (bits == splat_int(255));
  return power_of(bits);
}

/// The codes of at most kSpan columns, one per byte.
TENON_INLINE void load_codes(const std::uint8_t* from, std::int64_t n, bool packed, std::uint8_t* codes) {
  if (!packed) {
    __builtin_memcpy(codes, from, n);
    return;
  }
  for (std::int64_t i = 0; i < (n + 1) / 2; ++i) {
    codes[2 * i] = from[i] & 15;
    codes[2 * i + 1] = from[i] >> 4;
  }
}

template <class S, Element kElement>
bool dequantize_fast(const QuantizeArgs<S>& a) {
  const bool scaled = a.scaling == Scaling::kTwoLevel || a.scaling == Scaling::kPower;
  const bool exact = a.scaling != Scaling::kPower;
  I beyond = {};
  std::int64_t first = 0;
  first = decoded_columns(a.columns, a.element, a.scaling, a.block_columns, a.packed);
  if (first > 0)
    decode_in_pairs(a, first, [&](I bits) TENON_BODY { return decode_lanes<Element::kE4M3>(bits, beyond); });
  for (std::int64_t row = 0; row < a.rows; ++row)
    for (std::int64_t column = first; column < a.columns; column += kSpan) {
      const std::int64_t columns = smaller(kSpan, a.columns - column);
      alignas(64) std::uint8_t codes[kSpan] = {};
      load_codes(a.codes + row * a.codes_stride + (a.packed ? column / 2 : column), columns, a.packed, codes);
      Bf16* values = a.values + row * a.values_stride + column;
      const std::uint8_t* scales =
          scaled ? a.scales + row / a.block_rows * a.scales_stride + column / a.block_columns : nullptr;
      const std::int64_t vectors = a.block_columns / kLanes;
      std::int64_t block = 0, left = vectors - (scaled ? column % a.block_columns / kLanes : 0);
      for (std::int64_t i = 0; i < columns; i += kLanes) {
        const std::int64_t n = smaller(kLanes, columns - i);
        F value = decode_lanes<kElement>(load_bytes(codes + i), beyond);
        if (scaled) {
          I bits;
          if (a.block_columns == 1) {
            std::uint8_t bytes[kLanes] = {};
            __builtin_memcpy(bytes, scales + i, n);
            bits = load_bytes(bytes);
          } else {
            bits = splat_int(scales[block]);
            if (--left == 0) {
              left = vectors;
              ++block;
            }
          }
          value = value * scale_lanes<kElement>(a, bits, beyond);
        }
        if (exact)
          store_upper(values + i, bits_of(value), n);
        else
          store_group(values + i, value, n);
      }
    }
  return largest_lane(beyond & splat_int(1)) == 0;
}

template <class S>
void dequantize(const QuantizeArgs<S>& a) {
  const bool scaled = a.scaling == Scaling::kTwoLevel || a.scaling == Scaling::kPower;
  const bool whole_lanes = !scaled || a.block_columns == 1 || a.block_columns % kLanes == 0;
  bool done = false;
  if (whole_lanes) {
    if (a.element == Element::kE2M1) done = dequantize_fast<S, Element::kE2M1>(a);
    if (a.element == Element::kE4M3) done = dequantize_fast<S, Element::kE4M3>(a);
    if (a.element == Element::kE5M2) done = dequantize_fast<S, Element::kE5M2>(a);
  }
  if (!done) plain::dequantize(a);
}

}  // namespace
}  // namespace tenon::kernels
