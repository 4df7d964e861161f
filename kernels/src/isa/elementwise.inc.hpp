// Element-by-element operators (formulas: elementwise.hpp). Where that header specifies the bits of a
// formula, plain products and sums are used, never mul_add.
#pragma once

#include <tenon/kernels/elementwise.hpp>

#include "isa/math.inc.hpp"

namespace tenon::kernels {
namespace {

template <class S, class Fn>
TENON_INLINE void map(const S* x, S* y, std::int64_t n, Fn fn) {
  for_lanes(0, n, [&](std::int64_t i, std::int64_t count) TENON_BODY {
    store_group(y + i, fn(load_group(x + i, count)), count);
  });
}
template <class S, class Fn>
TENON_INLINE void map(const S* a, const S* b, S* y, std::int64_t n, Fn fn) {
  for_lanes(0, n, [&](std::int64_t i, std::int64_t count) TENON_BODY {
    store_group(y + i, fn(load_group(a + i, count), load_group(b + i, count)), count);
  });
}

template <class S>
void exp_map(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](F a) TENON_BODY { return exp(a); });
}
template <class S>
void log_map(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](F a) TENON_BODY { return log(a); });
}
template <class S>
void tanh_map(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](F a) TENON_BODY { return tanh(a); });
}
template <class S>
void erf_map(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](F a) TENON_BODY { return erf(a); });
}

constexpr float kSqrt2OverPi = 0.797884561f;
constexpr float kGeluCubic = 0.044715f;
constexpr float kInvSqrt2Pi = 0.398942280f;

/// exp(-2 u), u the argument of tanh: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which cancels nowhere.
TENON_INLINE F gelu_tanh_power(F x) {
  return exp(splat(-2 * kSqrt2OverPi) * mul_add(splat(kGeluCubic) * x * x, x, x));
}

template <class S>
void gelu_tanh_forward(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](F a) TENON_BODY { return a / (splat(1.0f) + gelu_tanh_power(a)); });
}

template <class S>
void gelu_tanh_backward(const S* x, const S* dy, S* dx, std::int64_t n) {
  map(x, dy, dx, n, [](F a, F g) TENON_BODY {
    // Beyond 10 the slope is 0 or 1 in float; the clamp keeps its factors finite. NaN passes (see max).
    const F c = max(splat(-10.0f), min(splat(10.0f), a));
    const F e = gelu_tanh_power(c);
    const F s = splat(1.0f) / (splat(1.0f) + e);
    const F slope = mul_add(splat(6 * kSqrt2OverPi * kGeluCubic) * c, c, splat(2 * kSqrt2OverPi));
    const F inner = mul_add(c * slope, e * s, splat(1.0f));  // e s = 1 - s without its rounding
    return select(a < splat(-10.0f), splat(0.0f), g * (s * inner));
  });
}

/// The normal distribution beyond a >= 0 has the probability exp(-a^2 / 2) P(a); the polynomial of P was
/// fitted under that weight, to 2^-25 of 1. From 5.6 on the probability is below that.
struct NormalTail {
  F density, p;  ///< exp(-a^2 / 2) and P(a)
};
TENON_INLINE NormalTail normal_tail(F a) {
  constexpr float c[] = {0.49999997f,     -0.398940593f,    0.249972567f,    -0.132805794f,
                         0.061923936f,    -0.0254718214f,   0.00900385063f,  -0.00259009213f,
                         0.000563653361f, -8.47711126e-05f, 7.70879251e-06f, -3.1554373e-07f};
  return {exp(splat(-0.5f) * a * a), polynomial(a, c)};
}

template <class S>
void gelu_erf_forward(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](F v) TENON_BODY {
    const F a = min(splat(20.0f), abs(v));  // nothing is left beyond
    const NormalTail tail = normal_tail(a);
    return mul_add(splat(-1.0f) * a, tail.density * tail.p, max(splat(0.0f), v));
  });
}

template <class S>
void gelu_erf_backward(const S* x, const S* dy, S* dx, std::int64_t n) {
  map(x, dy, dx, n, [](F v, F g) TENON_BODY {
    const F a = min(splat(20.0f), abs(v));
    const NormalTail tail = normal_tail(a);
    const F below = tail.density * mul_add(splat(-kInvSqrt2Pi), a, tail.p);  // the slope at -a
    return g * select(splat(0.0f) < v, splat(1.0f) - below, below);
  });
}

template <class S>
void silu_forward(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](F a) TENON_BODY { return a / (splat(1.0f) + exp(splat(0.0f) - a)); });
}
template <class S>
void silu_backward(const S* x, const S* dy, S* dx, std::int64_t n) {
  map(x, dy, dx, n, [](F a, F g) TENON_BODY {
    const F s = splat(1.0f) / (splat(1.0f) + exp(splat(0.0f) - a));
    return g * (s * mul_add(a, splat(1.0f) - s, splat(1.0f)));
  });
}

template <class S>
void add(const S* a, const S* b, S* y, std::int64_t n) {
  map(a, b, y, n, [](F p, F q) TENON_BODY { return p + q; });
}
template <class S>
void scale(float alpha, const S* x, S* y, std::int64_t n) {
  map(x, y, n, [&](F a) TENON_BODY { return splat(alpha) * a; });
}
template <class S>
void axpy(float alpha, const S* x, S* y, std::int64_t n) {
  map(x, y, y, n, [&](F a, F b) TENON_BODY { return b + splat(alpha) * a; });
}
template <class S>
void lerp(float w, const S* a, const S* b, S* y, std::int64_t n) {
  map(a, b, y, n, [&](F p, F q) TENON_BODY { return p + splat(w) * (q - p); });
}
template <class S>
void fill(float value, S* y, std::int64_t n) {
  for_lanes(0, n,
            [&](std::int64_t i, std::int64_t count) TENON_BODY { store_group(y + i, splat(value), count); });
}
template <class S>
void add_bias(const S* x, const float* bias, S* y, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r)
    for_lanes(0, cols, [&](std::int64_t j, std::int64_t count) TENON_BODY {
      const std::int64_t i = r * cols + j;
      store_group(y + i, load_group(x + i, count) + load_group(bias + j, count), count);
    });
}

void f32_to_bf16(const float* x, Bf16* y, std::int64_t n) {
  for_lanes(0, n, [&](std::int64_t i, std::int64_t count) TENON_BODY {
    store_group(y + i, load_group(x + i, count), count);
  });
}
void bf16_to_f32(const Bf16* x, float* y, std::int64_t n) {
  for_lanes(0, n, [&](std::int64_t i, std::int64_t count) TENON_BODY {
    store_group(y + i, load_group(x + i, count), count);
  });
}

/// Blocks of the counter-based generator that are computed together: 256 words. Loops as short as 16 would be
/// unrolled before they are vectorised, and then are not.
constexpr int kPhiloxBlocks = 64;

/// words[4 b + w] = word w of block first + b; one array per word, so that the rounds run in vector lanes.
TENON_INLINE void philox_words(std::uint64_t key, std::uint64_t first, std::uint32_t* words) {
  std::uint32_t c0[kPhiloxBlocks], c1[kPhiloxBlocks], c2[kPhiloxBlocks] = {}, c3[kPhiloxBlocks] = {};
  for (int b = 0; b < kPhiloxBlocks; ++b) {
    const std::uint64_t counter = first + static_cast<std::uint64_t>(b);
    c0[b] = static_cast<std::uint32_t>(counter);
    c1[b] = static_cast<std::uint32_t>(counter >> 32);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int b = 0; b < kPhiloxBlocks; ++b) {
      const std::uint64_t p = std::uint64_t{0xD2511F53u} * c0[b], q = std::uint64_t{0xCD9E8D57u} * c2[b];
      c0[b] = static_cast<std::uint32_t>(q >> 32) ^ c1[b] ^ k0;
      c2[b] = static_cast<std::uint32_t>(p >> 32) ^ c3[b] ^ k1;
      c1[b] = static_cast<std::uint32_t>(q);
      c3[b] = static_cast<std::uint32_t>(p);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int b = 0; b < kPhiloxBlocks; ++b) {
    words[4 * b] = c0[b];
    words[4 * b + 1] = c1[b];
    words[4 * b + 2] = c2[b];
    words[4 * b + 3] = c3[b];
  }
}

template <class S>
void dropout(std::uint64_t key, std::uint64_t first_index, std::uint32_t threshold, float scale, const S* x,
             S* y, std::int64_t n) {
  constexpr std::int64_t kWords = 4 * kPhiloxBlocks;
  std::uint32_t words[kWords];
  for (std::int64_t i = 0; i < n;) {
    const std::uint64_t index = first_index + static_cast<std::uint64_t>(i);
    const std::int64_t skip = static_cast<std::int64_t>(index % kWords);
    const std::int64_t end = n - i < kWords - skip ? n : i + kWords - skip;
    philox_words(key, (index - static_cast<std::uint64_t>(skip)) / 4, words);
    // Words become signed comparisons by flipping the top bit on both sides.
    const I limit = splat_int(static_cast<std::int32_t>(threshold ^ 0x80000000u));
    for (int w = 0; w < kWords; ++w) words[w] ^= 0x80000000u;
    for_lanes(i, end, [&](std::int64_t e, std::int64_t count) TENON_BODY {
      I draws = {};
      __builtin_memcpy(&draws, words + skip + (e - i), count * sizeof(std::uint32_t));
      store_group(y + e, select(draws < limit, splat(0.0f), load_group(x + e, count) * splat(scale)), count);
    });
    i = end;
  }
}

}  // namespace
}  // namespace tenon::kernels
