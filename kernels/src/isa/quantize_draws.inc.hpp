// Random words of stochastic rounding for 16 groups at once: Philox4x32-10 with a counter per 64-bit lane,
// whose upper half may hold anything (multiplication and the results use the lower half alone). Lanes differ
// in one word of the counter, so the first rounds are partly those of all lanes, computed once.
#pragma once

#include <tenon/kernels/quantize.hpp>

#include "isa/quantize_lanes.inc.hpp"

namespace tenon::kernels {
namespace {

typedef std::uint64_t WidePart __attribute__((vector_size(TENON_SIMD_BYTES)));
constexpr int kWideLanes = TENON_SIMD_BYTES / 8;
constexpr int kWideParts = kLanes / kWideLanes;

/// 16 words of 32 bits, each in a lane of 64.
struct Wide {
  WidePart v[kWideParts];
};

/// Product of the lower halves.
TENON_INLINE WidePart multiply(WidePart a, std::uint32_t b) {
  const WidePart factor = std::uint64_t{b} - WidePart{};
#if TENON_SIMD_BYTES == 64
  return (WidePart)_mm512_maskz_mul_epu32(__mmask8{0xff}, (__m512i)a, (__m512i)factor);
#elif TENON_SIMD_BYTES == 32
  return (WidePart)_mm256_mul_epu32((__m256i)a, (__m256i)factor);
#elif defined(__SSE2__)
  return (WidePart)_mm_mul_epu32((__m128i)a, (__m128i)factor);
#else
  return (a & 0xffffffffu) * factor;
#endif
}

TENON_INLINE WidePart splat_wide(std::uint64_t x) {
  return x - WidePart{};
}
TENON_INLINE WidePart xor_three(WidePart a, WidePart b, WidePart c) {
#if TENON_SIMD_BYTES == 64
  return (WidePart)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
#else
  return a ^ b ^ c;
#endif
}

constexpr int kRounds = 10;
constexpr std::uint32_t kFactor0 = 0xD2511F53u, kFactor2 = 0xCD9E8D57u;

/// Parameters common to all draws of a call: the keys of the rounds, and counters.
struct Stream {
  std::uint64_t keys[kRounds][2];
  std::uint32_t step, micro;
};
/// Empty where nothing is drawn.
template <Draw kDraw, class S>
TENON_INLINE Stream stream_of(const QuantizeArgs<S>& a) {
  Stream stream;
  if constexpr (kDraw == Draw::kNone) return stream;
  stream.step = static_cast<std::uint32_t>(a.step);
  stream.micro = a.micro;
  auto key0 = static_cast<std::uint32_t>(a.key), key1 = static_cast<std::uint32_t>(a.key >> 32);
  for (auto& keys : stream.keys) {
    keys[0] = key0;
    keys[1] = key1;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return stream;
}

/// Words of 16 counters.
struct Words {
  Wide w[4];
};

/// A counter whose words are the same in all lanes.
struct SameCounter {
  std::uint32_t c0, c1, c2, c3;
  TENON_INLINE void round(const std::uint64_t (&keys)[2]) {
    const std::uint64_t a = std::uint64_t{c0} * kFactor0, b = std::uint64_t{c2} * kFactor2;
    c0 = static_cast<std::uint32_t>((b >> 32) ^ c1 ^ keys[0]);
    c2 = static_cast<std::uint32_t>((a >> 32) ^ c3 ^ keys[1]);
    c1 = static_cast<std::uint32_t>(b);
    c3 = static_cast<std::uint32_t>(a);
  }
};

/// Registers whose rounds are computed side by side, because a round waits for the one before it.
constexpr int kSideBySide = kWideParts > 1 ? 2 : 1;

/// The rounds from `first` on.
TENON_INLINE void rounds_from(int first, const Stream& stream, WidePart (&c)[4][kSideBySide]) {
#pragma GCC unroll 1
  for (int round = first; round < kRounds; ++round) {
    const WidePart k0 = splat_wide(stream.keys[round][0]), k1 = splat_wide(stream.keys[round][1]);
#pragma GCC unroll 2
    for (int i = 0; i < kSideBySide; ++i) {
      const WidePart a = multiply(c[0][i], kFactor0), b = multiply(c[2][i], kFactor2);
      c[0][i] = xor_three(b >> 32, c[1][i], k0);
      c[2][i] = xor_three(a >> 32, c[3][i], k1);
      c[1][i] = b;
      c[3][i] = a;
    }
  }
}

/// Calls start(numbers of lanes, c of a register) for all registers, in which it finds the counters before
/// round `first`, and then the other rounds.
template <class Start>
TENON_INLINE void draw_words(int first, const Stream& stream, Words& words, Start start) {
  for (int p = 0; p < kWideParts; p += kSideBySide) {
    WidePart c[4][kSideBySide];
    for (int i = 0; i < kSideBySide; ++i) {
      WidePart lanes, of_lanes[4];
      for (int l = 0; l < kWideLanes; ++l) lanes[l] = static_cast<std::uint64_t>((p + i) * kWideLanes + l);
      start(lanes, of_lanes);
      for (int w = 0; w < 4; ++w) c[w][i] = of_lanes[w];
    }
    rounds_from(first, stream, c);
    for (int i = 0; i < kSideBySide; ++i)
      for (int w = 0; w < 4; ++w) words.w[w].v[p + i] = c[w][i];
  }
}

/// Words of counters {group + lane, line, step, 4 micro + part}. Out of line: it is called once for 256
/// draws, from many places.
__attribute__((noinline)) void draw_along(const Stream& stream, std::int64_t group, std::int64_t line,
                                          std::uint32_t part, Words& words) {
  // Lanes differ in word 0, from the first round on in 2 and 3, and from the second on in 0, 1 and 2.
  SameCounter same{0, static_cast<std::uint32_t>(line), stream.step, stream.micro * 4 + part};
  const std::uint64_t of_first = same.c3 ^ stream.keys[0][1];
  same.round(stream.keys[0]);
  const std::uint64_t of_second0 = same.c1 ^ stream.keys[1][0];
  same.round(stream.keys[1]);
  // Word 2 after that round, but for what the lanes add to it: their word 3 (0 above).
  const std::uint64_t of_second2 = same.c2, of_third = same.c3;
  draw_words(2, stream, words, [&](WidePart lanes, WidePart(&c)[4]) TENON_BODY {
    const WidePart a = multiply(splat_wide(static_cast<std::uint64_t>(group)) + lanes, kFactor0);
    const WidePart b = multiply((a >> 32) ^ splat_wide(of_first), kFactor2);
    c[0] = (b >> 32) ^ splat_wide(of_second0);
    c[1] = b;
    c[2] = a ^ splat_wide(of_second2);
    c[3] = splat_wide(of_third);
  });
}

/// Words of counters {group, line + lane kStep, step, 4 micro + part}.
template <int kStep>
__attribute__((noinline)) void draw_down(const Stream& stream, std::int64_t group, std::int64_t line,
                                         std::uint32_t part, Words& words) {
  // Lanes differ in word 1, from the first round on in 0, from the second in 2 and 3, from the third in 0, 1
  // and 2.
  SameCounter same{static_cast<std::uint32_t>(group), 0, stream.step, stream.micro * 4 + part};
  same.round(stream.keys[0]);
  const std::uint64_t of_first = same.c0, of_second = same.c3 ^ stream.keys[1][1];
  same.round(stream.keys[1]);
  const std::uint64_t of_third0 = same.c1 ^ stream.keys[2][0];
  same.c3 = 0;
  same.round(stream.keys[2]);
  const std::uint64_t of_third2 = same.c2, of_fourth = same.c3;
  draw_words(3, stream, words, [&](WidePart lanes, WidePart(&c)[4]) TENON_BODY {
    const WidePart lines = splat_wide(static_cast<std::uint64_t>(line)) + lanes * std::uint64_t{kStep};
    const WidePart a = multiply(lines ^ splat_wide(of_first), kFactor0);
    const WidePart b = multiply((a >> 32) ^ splat_wide(of_second), kFactor2);
    c[0] = (b >> 32) ^ splat_wide(of_third0);
    c[1] = b;
    c[2] = a ^ splat_wide(of_third2);
    c[3] = splat_wide(of_fourth);
  });
}

/// Words 0 to 3 of lane g become out[stride g] and the next, lower halves first.
__attribute__((noinline)) void store_by_lane(const Words& words, std::uint64_t* out, std::int64_t stride) {
  for (int p = 0; p < kWideParts; ++p) {
    const WidePart low = (words.w[0].v[p] & 0xffffffffu) | words.w[1].v[p] << 32;
    const WidePart high = (words.w[2].v[p] & 0xffffffffu) | words.w[3].v[p] << 32;
    for (int l = 0; l < kWideLanes; ++l) {
      out[(p * kWideLanes + l) * stride] = low[l];
      out[(p * kWideLanes + l) * stride + 1] = high[l];
    }
  }
}

/// Word w of all lanes.
TENON_INLINE I word_lanes(const Words& words, int w) {
  std::uint32_t lanes[kLanes];
  for (int p = 0; p < kWideParts; ++p)
    for (int l = 0; l < kWideLanes; ++l)
      lanes[p * kWideLanes + l] = static_cast<std::uint32_t>(words.w[w].v[p][l]);
  I result;
  __builtin_memcpy(&result, lanes, sizeof result);
  return result;
}

}  // namespace
}  // namespace tenon::kernels
