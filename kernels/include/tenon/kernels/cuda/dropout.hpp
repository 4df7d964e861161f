// Kernel body of dropout. The words are those of philox.hpp, so every device keeps the same elements.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/philox.hpp>

namespace tenon::kernels::cuda {

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
