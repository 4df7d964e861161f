// Random words of stochastic rounding for 16 groups at once: Philox4x32-10 with a counter per 64-bit lane,
// whose upper half may hold anything (multiplication and the results use the lower half alone).
#pragma once

#include <tenon/kernels/quantize.hpp>

#include "isa/simd.inc.hpp"

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

/// Parameters common to all draws of a call.
struct Stream {
  std::uint64_t key;
  std::uint32_t step, micro;
};
template <class S>
TENON_INLINE Stream stream_of(const QuantizeArgs<S>& a) {
  return {a.key, static_cast<std::uint32_t>(a.step), a.micro};
}

/// Words of 16 counters {group + lane group_step, line + lane line_step, ...}.
struct Words {
  Wide w[4];
};
/// Out of line: it is called once for 256 draws, from many places.
__attribute__((noinline)) void draw_words(const Stream& stream, std::int64_t group, std::uint64_t group_step,
                                          std::int64_t line, std::uint64_t line_step, std::uint32_t part,
                                          Words& words) {
  for (int p = 0; p < kWideParts; ++p) {
    WidePart lanes;
    for (int l = 0; l < kWideLanes; ++l) lanes[l] = static_cast<std::uint64_t>(p * kWideLanes + l);
    WidePart c0 = static_cast<std::uint64_t>(group) + lanes * group_step;
    WidePart c1 = static_cast<std::uint64_t>(line) + lanes * line_step;
    WidePart c2 = std::uint64_t{stream.step} + WidePart{};
    WidePart c3 = std::uint64_t{stream.micro * 4 + part} + WidePart{};
    std::uint32_t k0 = static_cast<std::uint32_t>(stream.key);
    std::uint32_t k1 = static_cast<std::uint32_t>(stream.key >> 32);
    for (int round = 0; round < 10; ++round) {
      const WidePart a = multiply(c0, 0xD2511F53u), b = multiply(c2, 0xCD9E8D57u);
      c0 = (b >> 32) ^ c1 ^ k0;
      c2 = (a >> 32) ^ c3 ^ k1;
      c1 = b;
      c3 = a;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words.w[0].v[p] = c0;
    words.w[1].v[p] = c1;
    words.w[2].v[p] = c2;
    words.w[3].v[p] = c3;
  }
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
