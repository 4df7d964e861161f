// IEEE binary16, stored and as a rounding of floats, for host and device.
#pragma once

#include <bit>
#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

inline constexpr std::uint32_t kHalfMagnitude = 0x7fffffffu;
inline constexpr std::uint32_t kHalfInfinity = 0x7f800000u;

/// The bits of a float that is x, given by its bits, rounded to binary16: nearest even, subnormals kept,
/// overflow to infinity, NaN quiet. Below 2^-14 adding 1/2 leaves multiples of 2^-24, the subnormals' step,
/// in the last place; above, half a unit of the tenth mantissa bit is added, less one for ties to even.
TENON_BOTH constexpr std::uint32_t half_bits(std::uint32_t bits) noexcept {
  const std::uint32_t sign = bits & ~kHalfMagnitude, magnitude = bits & kHalfMagnitude;
  const float small = (std::bit_cast<float>(magnitude) + 0.5f) - 0.5f;
  const std::uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) & ~0x1fffu;
  std::uint32_t result = magnitude < 0x38800000u ? std::bit_cast<std::uint32_t>(small) : normal;
  result = result >= 0x47800000u ? kHalfInfinity : result;  // 65536
  result = magnitude > kHalfInfinity ? magnitude | 0x00400000u : result;
  return sign | result;
}

/// Loss by rounding: a number became infinite, or zero.
TENON_BOTH constexpr bool half_overflows(std::uint32_t bits, std::uint32_t rounded) noexcept {
  return (rounded & kHalfMagnitude) == kHalfInfinity && (bits & kHalfMagnitude) != kHalfInfinity;
}
TENON_BOTH constexpr bool half_underflows(std::uint32_t bits, std::uint32_t rounded) noexcept {
  return (rounded & kHalfMagnitude) == 0 && (bits & kHalfMagnitude) != 0;
}

/// binary16 as it is stored, for transfers between replicas.
struct Half {
  std::uint16_t bits;
};

/// Rounded as half_bits() does; every NaN becomes the same one.
TENON_BOTH constexpr Half to_half(float value) noexcept {
  const std::uint32_t rounded = half_bits(std::bit_cast<std::uint32_t>(value));
  const std::uint32_t sign = rounded >> 16 & 0x8000u, magnitude = rounded & kHalfMagnitude;
  std::uint32_t code = 0;
  if (magnitude > kHalfInfinity) {
    code = 0x7e00u;
  } else if (magnitude == kHalfInfinity) {
    code = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    code = (magnitude - 0x38000000u) >> 13;
  }
  return Half{static_cast<std::uint16_t>(sign | code)};
}

/// Exact. Thirteen bits up and times 2^112: normals get their exponent, subnormals are exact.
TENON_BOTH constexpr float to_float(Half value) noexcept {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16, body = value.bits & 0x7fffu;
  if (body >= 0x7c00u) return std::bit_cast<float>(sign | kHalfInfinity | (body & 0x3ffu) << 13);
  const float magnitude = std::bit_cast<float>(body << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

}  // namespace tenon::kernels
