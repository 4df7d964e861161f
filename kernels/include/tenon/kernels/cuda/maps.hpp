// The pointwise maps that a product may apply to its result, in kernel bodies: products and activations share
// this code, so both produce the same bits. All keep a NaN.
#pragma once

#include <cmath>
#include <tenon/kernels/types.hpp>

namespace tenon::kernels::cuda {

enum class Map : std::uint8_t { kNone, kGeluTanh, kGeluExact, kRelu, kSilu, kSquaredRelu };

/// map(x); A is float or double.
template <class A>
TENON_BOTH A mapped(Map map, A x) {
  switch (map) {
    case Map::kGeluTanh: {
      constexpr A kSqrt2OverPi = static_cast<A>(0.79788456080286535588), kCubic = static_cast<A>(0.044715);
      return x / 2 * (1 + std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x)));
    }
    case Map::kGeluExact: {
      constexpr A kSqrt2 = static_cast<A>(1.41421356237309504880);
      return x / 2 * (1 + std::erf(x / kSqrt2));
    }
    case Map::kRelu:
      return x <= 0 ? A{0} : x;
    case Map::kSilu:
      return x / (1 + std::exp(-x));
    case Map::kSquaredRelu:
      return x <= 0 ? A{0} : x * x;
    default:
      return x;
  }
}

}  // namespace tenon::kernels::cuda
