// Kernel bodies of signs (signs.hpp), with the bits of the host's loops. Neighbouring threads read and write
// elements of a tile, and each byte of bits belongs to one thread; shared memory converts between the two.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/signs.hpp>

namespace tenon::kernels::cuda {

static_assert(kSignLanes == kThreads);
inline constexpr std::int64_t kSignTile = 8 * kThreads;

/// lanes[0] = the sum of term(i) over [0, n), by the kSignLanes threads of one block.
template <class Term>
TENON_BOTH void sum_in_lanes(const Block& block, double* lanes, std::int64_t n, Term term) {
  block.each([&](int thread) {
    double own = 0;
    for (std::int64_t i = thread; i < n; i += kSignLanes) own += term(i);
    lanes[thread] = own;
  });
  reduce_block(block, lanes, Add{});
}

/// sums[block] = the sum of |x| over that block of kSignBlock elements.
template <class A>
struct SignBlockSums {
  const A* x;
  std::int64_t n;
  double* sums;

  Grid mesh() const { return {sign_blocks(n), kSignLanes, kSignLanes * sizeof(double)}; }

  TENON_BOTH void operator()(const Block& block) const {
    double* const lanes = block.shared<double>();
    const SignBlockSums& a = *this;
    const std::int64_t first = block.index() * kSignBlock;
    const std::int64_t rest = n - first;
    sum_in_lanes(block, lanes, rest < kSignBlock ? rest : kSignBlock, [&](std::int64_t i) {
      const auto value = static_cast<double>(a.x[first + i]);
      return value < 0 ? -value : value;
    });
    block.each([&](int thread) {
      if (thread == 0) a.sums[block.index()] = lanes[0];
    });
  }
};

/// The scale of n elements from the sums of their blocks, by one block of threads.
struct SignScale {
  const double* sums;
  std::int64_t n;
  std::uint8_t* scale;

  static Grid mesh() { return {1, kSignLanes, kSignLanes * sizeof(double)}; }

  TENON_BOTH void operator()(const Block& block) const {
    double* const lanes = block.shared<double>();
    const SignScale& a = *this;
    sum_in_lanes(block, lanes, sign_blocks(n), [&](std::int64_t i) { return a.sums[i]; });
    block.each([&](int thread) {
      if (thread == 0) put_sign_scale(sign_scale(lanes[0], a.n), a.scale);
    });
  }
};

/// At most as many blocks as keep a device busy, whose tiles are consecutive.
constexpr Grid sign_tiles(std::int64_t n, std::size_t shared) {
  return {grid_for((n + 7) / 8).blocks, kThreads, shared};
}

/// bits and, unless null, lost, from the scale; lost may be x.
template <class A>
struct EncodeSigns {
  const A* x;
  std::int64_t n;
  const std::uint8_t* scale;
  std::uint8_t* bits;
  A* lost;

  Grid mesh() const { return sign_tiles(n, kSignTile); }

  TENON_BOTH void operator()(const Block& block) const {
    auto* const negative = block.shared<std::uint8_t>();
    const EncodeSigns& a = *this;
    for (std::int64_t tile = block.index() * kSignTile; tile < n; tile += block.blocks() * kSignTile) {
      block.each([&](int thread) {
        const float one = a.lost == nullptr ? 0 : get_sign_scale(a.scale);
        A own[8];  // issues all loads before the first value is needed
        TENON_UNROLL
        for (int e = 0; e < 8; ++e) {
          const std::int64_t i = tile + e * kThreads + thread;
          own[e] = i < a.n ? a.x[i] : A{0};
        }
        TENON_UNROLL
        for (int e = 0; e < 8; ++e) {
          const std::int64_t i = tile + e * kThreads + thread;
          negative[i - tile] = own[e] < 0;
          if (i < a.n && a.lost != nullptr) a.lost[i] = own[e] - sign_value<A>(own[e] < 0, one);
        }
      });
      block.each([&](int thread) {
        if (tile + 8 * thread >= a.n) return;
        unsigned byte = 0;
        for (int e = 0; e < 8; ++e) byte |= static_cast<unsigned>(negative[8 * thread + e]) << e;
        a.bits[tile / 8 + thread] = static_cast<std::uint8_t>(byte);
      });
    }
  }
};

template <class A>
struct DecodeSigns {
  SignRows rows;
  A* mean;
  std::int64_t n;

  /// Elements of one place in their bytes are side by side, and those of one byte in banks of their own.
  static constexpr std::int64_t kPitch = kThreads + 4;
  Grid mesh() const { return sign_tiles(n, 8 * kPitch * sizeof(A)); }

  TENON_BOTH void operator()(const Block& block) const {
    A* const means = block.shared<A>();
    const DecodeSigns& a = *this;
    for (std::int64_t tile = block.index() * kSignTile; tile < n; tile += block.blocks() * kSignTile) {
      block.each([&](int thread) {
        if (tile + 8 * thread >= a.n) return;
        A own[8];
        a.rows.mean(tile / 8 + thread, own);
        TENON_UNROLL
        for (int e = 0; e < 8; ++e) means[e * kPitch + thread] = own[e];
      });
      block.each([&](int thread) {
        for (std::int64_t i = thread; i < kSignTile && tile + i < a.n; i += kThreads)
          a.mean[tile + i] = means[i % 8 * kPitch + i / 8];
      });
    }
  }
};

}  // namespace tenon::kernels::cuda
