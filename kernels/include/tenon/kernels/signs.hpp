// Signs of a vector with one scale, mean |x|: the order of its sum, its bytes, and the loops of the host. A
// vector is split into blocks of kSignBlock elements counted from its start; each block becomes one double
// (kSignLanes lanes, element i to lane i % kSignLanes, then the lanes by halves), and the blocks' sums are
// added likewise. A lane is a thread of a GPU; the number of threads or of its blocks does not change a bit.
#pragma once

#include <bit>
#include <cmath>
#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

inline constexpr std::int64_t kSignBlock = 8192;  ///< a multiple of 8: no two blocks share a byte
inline constexpr int kSignLanes = 256;

constexpr std::int64_t sign_blocks(std::int64_t n) {
  return (n + kSignBlock - 1) / kSignBlock;
}
constexpr std::int64_t sign_bytes(std::int64_t n) {
  return (n + 7) / 8;
}

/// The sum of term(i) over [0, n).
template <class Term>
double sign_sum(std::int64_t n, Term term) {
  double lanes[kSignLanes] = {};
  std::int64_t i = 0;
  for (; i + kSignLanes <= n; i += kSignLanes)
    for (int lane = 0; lane < kSignLanes; ++lane) lanes[lane] += term(i + lane);
  for (; i < n; ++i) lanes[i % kSignLanes] += term(i);
  for (int width = kSignLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}
/// Sum of |x| over a block of x.
template <class A>
double sign_block_sum(const A* x, std::int64_t n) {
  return sign_sum(n, [&](std::int64_t i) { return std::abs(static_cast<double>(x[i])); });
}

TENON_BOTH inline float sign_scale(double sum, std::int64_t n) {
  return n == 0 ? 0 : static_cast<float>(sum / static_cast<double>(n));
}
/// A row's scale begins at any byte, where a device may not read a float.
TENON_BOTH inline void put_sign_scale(float scale, std::uint8_t* bytes) {
  for (int i = 0; i < 4; ++i)
    bytes[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(scale) >> 8 * i);
}
TENON_BOTH inline float get_sign_scale(const std::uint8_t* bytes) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(bytes[i]) << 8 * i;
  return std::bit_cast<float>(bits);
}

/// Value of a sign. Bits are as good as random, so a branch would be mispredicted.
template <class A>
TENON_BOTH A sign_value(bool negative, float scale) {
  constexpr std::uint32_t kNegative = 0x80000000;
  return static_cast<A>(
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) ^ (negative ? kNegative : 0)));
}

/// Signs of n elements from a multiple of 8 on. Null `lost`: not wanted; it may be x.
template <class A>
void encode_signs(const A* x, std::int64_t n, float scale, std::uint8_t* bits, A* lost) {
  const auto byte_of = [](const A* from, std::int64_t count) {
    unsigned byte = 0;
    for (std::int64_t e = 0; e < count; ++e) byte |= (from[e] < 0 ? 1U : 0U) << e;
    return static_cast<std::uint8_t>(byte);
  };
  const std::int64_t whole = n / 8;
  for (std::int64_t i = 0; i < whole; ++i) bits[i] = byte_of(x + 8 * i, 8);
  if (n % 8 != 0) bits[whole] = byte_of(x + 8 * whole, n % 8);
  if (lost == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) lost[i] = x[i] - sign_value<A>(x[i] < 0, scale);
}

/// Places of the members' signs of one vector.
struct SignRows {
  const std::uint8_t *scale, *bits;  ///< of the first member
  std::int64_t members, stride;      ///< bytes from one member to the next

  /// mean[0 .. 8) of the elements of one byte of bits. Members are added in order.
  template <class A>
  TENON_BOTH void mean(std::int64_t byte, A* mean) const {
    A sums[8] = {};
    for (std::int64_t k = 0; k < members; ++k) {
      const float own = get_sign_scale(scale + k * stride);
      const unsigned signs = bits[k * stride + byte];
      for (int e = 0; e < 8; ++e) sums[e] += sign_value<A>((signs & (1U << e)) != 0, own);
    }
    for (int e = 0; e < 8; ++e) mean[e] = sums[e] * static_cast<A>(1.0 / static_cast<double>(members));
  }
};

}  // namespace tenon::kernels
