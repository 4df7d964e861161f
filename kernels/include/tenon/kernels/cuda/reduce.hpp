// Kernel bodies of reductions of flat tensors to one number. Results of blocks are stored side by side; the
// host joins them, in order.
#pragma once

#include <bit>
#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/reduce.hpp>

namespace tenon::kernels::cuda {

/// Sums of blocks of kReduceBlock elements, in the order of reduce.hpp, hence the bits of the other devices:
/// kLanes neighbouring threads are the lanes of one such block.
template <class S, bool Squares>
struct BlockSums {
  static constexpr int kBlockThreads = 128;
  static constexpr std::int64_t kPerBlock = kBlockThreads / kLanes;

  const S* x;
  std::int64_t n;
  double* sums;

  static Grid grid(std::int64_t n) {
    const std::int64_t blocks = (reduce_blocks(n) + kPerBlock - 1) / kPerBlock;
    return {blocks < 1 ? 1 : blocks, kBlockThreads, kBlockThreads * sizeof(double)};
  }

  TENON_BOTH void operator()(const Block& block) const {
    double* const lanes = block.shared<double>();
    const BlockSums& a = *this;
    const std::int64_t first = block.index() * kPerBlock;
    block.each([&](int thread) {
      const std::int64_t begin = (first + thread / kLanes) * kReduceBlock;
      const std::int64_t end = begin + kReduceBlock < a.n ? begin + kReduceBlock : a.n;
      double own = 0;
      for (std::int64_t i = begin + thread % kLanes; i < end; i += kLanes) {
        const auto value = static_cast<double>(get(a.x[i]));
        own += Squares ? value * value : value;
      }
      lanes[thread] = own;
    });
    for (int width = kLanes / 2; width > 0; width /= 2) {
      block.each([&](int thread) {
        if (thread % kLanes < width) lanes[thread] += lanes[thread + width];
      });
    }
    block.each([&](int thread) {
      const std::int64_t at = first + thread / kLanes;
      if (thread % kLanes == 0 && at * kReduceBlock < a.n) a.sums[at] = lanes[thread];
    });
  }
};

/// Bits of |x|: they order like the values, with NaN above infinity.
TENON_BOTH inline std::int64_t magnitude(float x) {
  return static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
}
TENON_BOTH inline std::int64_t magnitude(double x) {
  return static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(x) & 0x7fffffffffffffffull);
}

/// partial[block] = join of value(i) over this block's share of [0, n), starting from `none`. `join` works on
/// integers, where order does not matter.
template <class Value, class Join>
struct JoinIntegers {
  std::int64_t n, none;
  Value value;
  Join join;
  std::int64_t* partial;

  TENON_BOTH void operator()(const Block& block) const {
    std::int64_t* const found = block.shared<std::int64_t>();
    const JoinIntegers& a = *this;
    block.each([&](int thread) {
      std::int64_t own = a.none;
      const std::int64_t stride = block.blocks() * block.threads();
      for (std::int64_t i = block.index() * block.threads() + thread; i < a.n; i += stride)
        own = a.join(own, a.value(i));
      found[thread] = own;
    });
    reduce_block(block, found, join);
    block.each([&](int thread) {
      if (thread == 0) a.partial[block.index()] = found[0];
    });
  }
};

/// Magnitude of an element.
template <class S>
struct Magnitude {
  const S* x;
  TENON_BOTH std::int64_t operator()(std::int64_t i) const { return magnitude(get(x[i])); }
};
/// i where x[i] is no finite number, else n.
template <class S>
struct NotFinite {
  const S* x;
  std::int64_t n;
  TENON_BOTH std::int64_t operator()(std::int64_t i) const {
    const Arith<S> value = get(x[i]);
    return value - value == 0 ? n : i;
  }
};
/// i where indices[i] is outside [lowest, bound), else n.
struct OutOfRange {
  const std::int32_t* indices;
  std::int64_t lowest, bound, n;
  TENON_BOTH std::int64_t operator()(std::int64_t i) const {
    return indices[i] >= lowest && indices[i] < bound ? n : i;
  }
};

}  // namespace tenon::kernels::cuda
