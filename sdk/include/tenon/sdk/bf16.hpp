// One bfloat16 of host memory, for layers that compute element by element: a tensor of DType::kBF16 is an
// array of them. Arithmetic is the caller's, in float.
#pragma once

#include <tenon/abi.hpp>

#include <bit>
#include <cstdint>

TENON_ABI_BEGIN

/// The upper half of a float32, rounded to nearest even. A NaN stays one.
class Bf16 {
 public:
  Bf16() = default;
  explicit Bf16(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    bits_ = static_cast<std::uint16_t>((nan ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
  }

 private:
  std::uint16_t bits_ = 0;
};

TENON_ABI_END
