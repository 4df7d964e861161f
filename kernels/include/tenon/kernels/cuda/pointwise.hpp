// Kernel bodies of dropout, and of activations, as maps of elementwise.hpp: the pointwise maps of maps.hpp
// and their slopes, computed in the arithmetic type and rounded once.
#pragma once

#include <cmath>
#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/elementwise.hpp>
#include <tenon/kernels/cuda/maps.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/philox.hpp>

namespace tenon::kernels::cuda {

/// dy map'(x), by the formulas of reference/elementwise.hpp.
template <class A>
TENON_BOTH A mapped_backward(Map map, A x, A dy) {
  switch (map) {
    case Map::kGeluTanh: {
      constexpr A kSqrt2OverPi = static_cast<A>(0.79788456080286535588), kCubic = static_cast<A>(0.044715);
      const A t = std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x));
      const A slope = kSqrt2OverPi * (1 + 3 * kCubic * x * x);
      return dy * ((1 + t) / 2 + x / 2 * (1 - t * t) * slope);
    }
    case Map::kGeluExact: {
      constexpr A kSqrt2 = static_cast<A>(1.41421356237309504880);
      constexpr A kInverseSqrtPi = static_cast<A>(0.56418958354775628695);
      const A cdf = (1 + std::erf(x / kSqrt2)) / 2;
      const A pdf = std::exp(-x * x / 2) * kInverseSqrtPi / kSqrt2;
      return dy * (cdf + x * pdf);
    }
    case Map::kRelu:
      return x > 0 ? dy : A{0};
    case Map::kSilu: {
      const A s = 1 / (1 + std::exp(-x));
      return dy * (s * (1 + x * (1 - s)));
    }
    case Map::kSquaredRelu:
      return x > 0 ? 2 * x * dy : A{0};
    default:
      return dy;
  }
}

template <class S>
struct Activation {
  const S* x;
  Map map;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const { return mapped(map, get(x[i])); }
};

/// The result is added to `old` unless that is null.
template <class S>
struct ActivationBackward {
  const S *x, *dy, *old;
  Map map;
  TENON_BOTH Arith<S> operator()(std::int64_t i) const {
    const Arith<S> d = mapped_backward(map, get(x[i]), get(dy[i]));
    return old != nullptr ? get(old[i]) + d : d;
  }
};

// Kernel body of dropout. The words are those of philox.hpp, so every device keeps the same elements.

/// y[i] (+)= word first + i of stream `key` >= threshold ? x[i] scale : 0. A thread processes the elements
/// that share a block of four words.
template <class S>
struct Dropout {
  const S* x;
  S* y;
  std::int64_t n;
  std::uint64_t key, first;
  std::uint32_t threshold;
  Arith<S> scale;
  bool accumulate;

  TENON_BOTH std::int64_t blocks() const { return (n + static_cast<std::int64_t>(first % 4) + 3) / 4; }

  TENON_BOTH void operator()(const Block& block) const {
    const Dropout& a = *this;
    for_each_element(block, blocks(), [&](std::int64_t four) {
      const auto words = philox_block(a.key, a.first / 4 + static_cast<std::uint64_t>(four));
      const std::int64_t begin = four * 4 - static_cast<std::int64_t>(a.first % 4);
      for (int lane = 0; lane < 4; ++lane) {
        const std::int64_t i = begin + lane;
        if (i < 0 || i >= a.n) continue;
        const Arith<S> kept = words[lane] >= a.threshold ? get(a.x[i]) * a.scale : Arith<S>{0};
        a.y[i] = put<S>(a.accumulate ? get(a.y[i]) + kept : kept);
      }
    });
  }
};

}  // namespace tenon::kernels::cuda
