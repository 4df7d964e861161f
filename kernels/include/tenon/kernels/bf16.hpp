// Conversion between float and bfloat16, one element at a time. This is the definition; the vector kernels
// (elementwise.hpp: convert) produce the same bits.
#pragma once

#include <bit>
#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// Round to nearest, ties to even. A NaN keeps its sign and upper payload and becomes quiet; overflow becomes
/// infinity.
TENON_BOTH constexpr Bf16 to_bf16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return Bf16{static_cast<std::uint16_t>((bits >> 16) | 0x0040u)};
  return Bf16{static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

/// Exact.
TENON_BOTH constexpr float to_float(Bf16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Round to odd, on the way from f64 to a narrower type: the last bit records that bits were dropped, so
/// rounding again rounds once.
TENON_BOTH constexpr float to_odd(double value) noexcept {
  const auto single = static_cast<float>(value);
  const auto back = static_cast<double>(single);
  if (back == value || value != value) return single;
  const bool beyond = (back < 0 ? -back : back) > (value < 0 ? -value : value);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(single) - (beyond ? 1u : 0u)) | 1u);
}

}  // namespace tenon::kernels
