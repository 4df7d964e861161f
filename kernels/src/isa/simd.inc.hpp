// Vectors of 16 floats for one instruction set, built from GCC vector extensions in registers of
// TENON_SIMD_BYTES. Included by the file compiled once per instruction set; all of it has internal linkage,
// and nothing from the standard library with external linkage may be called here (see types.hpp). 16 lanes
// whatever the register: same bits on AVX2 and AVX-512. The portable set has no fused multiply-add, so
// mul_add is a product and a sum there.
#pragma once

#include <cstdint>
#include <tenon/kernels/types.hpp>

#if TENON_SIMD_BYTES > 16
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define TENON_INLINE inline __attribute__((always_inline))
// For lambdas over lanes: called from two places they would not be inlined, and their vectors would pass
// through memory.
#define TENON_BODY __attribute__((always_inline))

namespace tenon::kernels {
namespace {

typedef float Quad __attribute__((vector_size(16)));
typedef float Part __attribute__((vector_size(TENON_SIMD_BYTES)));
typedef std::int32_t IntPart __attribute__((vector_size(TENON_SIMD_BYTES)));
typedef std::uint32_t BitPart __attribute__((vector_size(TENON_SIMD_BYTES)));
constexpr int kParts = 64 / TENON_SIMD_BYTES;
constexpr int kPartLanes = TENON_SIMD_BYTES / 4;
static_assert(kParts * kPartLanes == kLanes);

/// 16 floats.
struct F {
  Part v[kParts];
};
/// 16 integers, or a mask of all-ones and all-zero lanes.
struct I {
  IntPart v[kParts];
};

template <class Out, class Fn>
TENON_INLINE Out each(Fn fn) {
  if constexpr (kParts == 1)
    return Out{{fn(0)}};
  else if constexpr (kParts == 2)
    return Out{{fn(0), fn(1)}};
  else
    return Out{{fn(0), fn(1), fn(2), fn(3)}};
}

TENON_INLINE F splat(float x) {
  return each<F>([&](int) { return x - Part{}; });
}
TENON_INLINE I splat_int(std::int32_t x) {
  return each<I>([&](int) { return x - IntPart{}; });
}
TENON_INLINE F operator+(F a, F b) {
  return each<F>([&](int p) { return a.v[p] + b.v[p]; });
}
TENON_INLINE F operator-(F a, F b) {
  return each<F>([&](int p) { return a.v[p] - b.v[p]; });
}
TENON_INLINE F operator*(F a, F b) {
  return each<F>([&](int p) { return a.v[p] * b.v[p]; });
}
TENON_INLINE F operator/(F a, F b) {
  return each<F>([&](int p) { return a.v[p] / b.v[p]; });
}
TENON_INLINE I operator<(F a, F b) {
  return each<I>([&](int p) { return (IntPart)(a.v[p] < b.v[p]); });
}
TENON_INLINE I operator==(F a, F b) {
  return each<I>([&](int p) { return (IntPart)(a.v[p] == b.v[p]); });
}
TENON_INLINE I operator==(I a, I b) {
  return each<I>([&](int p) { return (IntPart)(a.v[p] == b.v[p]); });
}
/// Sums and differences of integers wrap.
TENON_INLINE I operator+(I a, I b) {
  return each<I>([&](int p) { return (IntPart)((BitPart)a.v[p] + (BitPart)b.v[p]); });
}
TENON_INLINE I operator-(I a, I b) {
  return each<I>([&](int p) { return (IntPart)((BitPart)a.v[p] - (BitPart)b.v[p]); });
}
TENON_INLINE I operator&(I a, I b) {
  return each<I>([&](int p) { return a.v[p] & b.v[p]; });
}
TENON_INLINE I operator|(I a, I b) {
  return each<I>([&](int p) { return a.v[p] | b.v[p]; });
}
TENON_INLINE I operator<(I a, I b) {
  return each<I>([&](int p) { return (IntPart)(a.v[p] < b.v[p]); });
}
TENON_INLINE I shift_left(I a, int bits) {
  return each<I>([&](int p) { return (IntPart)((BitPart)a.v[p] << bits); });
}
/// Keeps the sign.
TENON_INLINE I shift_right(I a, int bits) {
  return each<I>([&](int p) { return a.v[p] >> bits; });
}
TENON_INLINE I bits_of(F a) {
  return each<I>([&](int p) { return (IntPart)a.v[p]; });
}
TENON_INLINE F from_bits(I a) {
  return each<F>([&](int p) { return (Part)a.v[p]; });
}
TENON_INLINE F select(I mask, F yes, F no) {
  return each<F>([&](int p) { return mask.v[p] ? yes.v[p] : no.v[p]; });
}
TENON_INLINE I select(I mask, I yes, I no) {
  return each<I>([&](int p) { return mask.v[p] ? yes.v[p] : no.v[p]; });
}
TENON_INLINE F to_float_lanes(I a) {
  return each<F>([&](int p) { return __builtin_convertvector(a.v[p], Part); });
}
/// a > b ? a : b, so a NaN in b survives and a NaN in a does not: as the maxps instruction.
TENON_INLINE F max(F a, F b) {
#if TENON_SIMD_BYTES == 64  // the compiler makes a comparison and a masked move of the formula
  return F{{(Part)_mm512_maskz_max_ps(__mmask16{0xffff}, (__m512)a.v[0], (__m512)b.v[0])}};
#else
  return each<F>([&](int p) { return a.v[p] > b.v[p] ? a.v[p] : b.v[p]; });
#endif
}
TENON_INLINE F min(F a, F b) {
#if TENON_SIMD_BYTES == 64
  return F{{(Part)_mm512_maskz_min_ps(__mmask16{0xffff}, (__m512)a.v[0], (__m512)b.v[0])}};
#else
  return each<F>([&](int p) { return a.v[p] < b.v[p] ? a.v[p] : b.v[p]; });
#endif
}
TENON_INLINE F abs(F a) {
  return from_bits(bits_of(a) & splat_int(0x7fffffff));
}
TENON_INLINE F with_sign_of(F magnitude, F sign) {
  return from_bits((bits_of(magnitude) & splat_int(0x7fffffff)) | (bits_of(sign) & splat_int(INT32_MIN)));
}

TENON_INLINE Part mul_add_part(Part a, Part b, Part c) {
#if TENON_SIMD_BYTES == 64
  return (Part)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif TENON_SIMD_BYTES == 32
  return (Part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}
/// a b + c.
TENON_INLINE F mul_add(F a, F b, F c) {
  return each<F>([&](int p) { return mul_add_part(a.v[p], b.v[p], c.v[p]); });
}
TENON_INLINE F sqrt(F a) {
#if TENON_SIMD_BYTES == 64
  return each<F>([&](int p) { return (Part)_mm512_maskz_sqrt_ps(__mmask16{0xffff}, (__m512)a.v[p]); });
#elif TENON_SIMD_BYTES == 32
  return each<F>([&](int p) { return (Part)_mm256_sqrt_ps((__m256)a.v[p]); });
#elif defined(__SSE2__)
  return each<F>([&](int p) { return (Part)_mm_sqrt_ps((__m128)a.v[p]); });
#else
  return each<F>([&](int p) {
    Part r = a.v[p];
    for (int l = 0; l < kPartLanes; ++l) r[l] = __builtin_sqrtf(r[l]);
    return r;
  });
#endif
}

TENON_INLINE Part load_part(const float* p) {
  Part r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
TENON_INLINE void store_part(float* p, Part a) {
  __builtin_memcpy(p, &a, sizeof a);
}

/// The first n elements of a register, followed by zeros; nothing else is touched.
#if TENON_SIMD_BYTES == 64
TENON_INLINE Part load_part_first(const float* p, std::int64_t n) {
  return (Part)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p);
}
TENON_INLINE void store_part_first(float* p, Part a, std::int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), (__m512)a);
}
#elif TENON_SIMD_BYTES == 32
TENON_INLINE __m256i part_lanes_first(std::int64_t n) {
  const IntPart lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  return (__m256i)(lanes < (static_cast<std::int32_t>(n) - IntPart{}));
}
TENON_INLINE Part load_part_first(const float* p, std::int64_t n) {
  return (Part)_mm256_maskload_ps(p, part_lanes_first(n));
}
TENON_INLINE void store_part_first(float* p, Part a, std::int64_t n) {
  _mm256_maskstore_ps(p, part_lanes_first(n), (__m256)a);
}
#else
TENON_INLINE Part load_part_first(const float* p, std::int64_t n) {
  Part r = {};
  for (std::int64_t i = 0; i < n; ++i) r[i] = p[i];
  return r;
}
TENON_INLINE void store_part_first(float* p, Part a, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) p[i] = a[i];
}
#endif

TENON_INLINE F load(const float* p) {
  return each<F>([&](int i) { return load_part(p + i * kPartLanes); });
}
/// Register by register: a copy of all of it goes through memory.
TENON_INLINE void store(float* p, F a) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) store_part(p + i * kPartLanes, a.v[i]);
}

/// The first n (1 .. 16) elements, followed by zeros; nothing else is touched.
TENON_INLINE F load(const float* p, std::int64_t n) {
#if TENON_SIMD_BYTES == 64
  return F{{load_part_first(p, n)}};
#else
  float buffer[kLanes] = {};
  __builtin_memcpy(buffer, p, n * sizeof(float));
  return load(buffer);
#endif
}
TENON_INLINE void store(float* p, F a, std::int64_t n) {
#if TENON_SIMD_BYTES == 64
  store_part_first(p, a.v[0], n);
#else
  __builtin_memcpy(p, &a, n * sizeof(float));
#endif
}

TENON_INLINE F load(const Bf16* p) {
  std::uint32_t words[kLanes];
  for (int l = 0; l < kLanes; ++l) words[l] = static_cast<std::uint32_t>(p[l].bits) << 16;
  F r;
  __builtin_memcpy(&r, words, sizeof r);
  return r;
}
/// Round to nearest even; NaN becomes quiet: the bits of to_bf16.
TENON_INLINE void store(Bf16* p, F a) {
  const I bits = bits_of(a);
  const I magnitude = bits & splat_int(0x7fffffff);
  const I rounded = bits + splat_int(0x7fff) + (shift_right(bits, 16) & splat_int(1));
  const I result = select(splat_int(0x7f800000) < magnitude, bits | splat_int(0x00400000), rounded);
  std::uint32_t words[kLanes];
  __builtin_memcpy(words, &result, sizeof words);
  for (int l = 0; l < kLanes; ++l) p[l].bits = static_cast<std::uint16_t>(words[l] >> 16);
}
TENON_INLINE F load(const Bf16* p, std::int64_t n) {
  Bf16 buffer[kLanes] = {};
  __builtin_memcpy(buffer, p, n * sizeof(Bf16));
  return load(buffer);
}
TENON_INLINE void store(Bf16* p, F a, std::int64_t n) {
  Bf16 buffer[kLanes];
  store(buffer, a);
  __builtin_memcpy(p, buffer, n * sizeof(Bf16));
}
/// Asks for the lines of neighbouring elements, which the processor by itself does not foresee, for the
/// nearest cache (3) or the second (2).
template <int kCache = 3, class S>
TENON_INLINE void prefetch_lines(const S* p, std::int64_t elements) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(S));
  for (std::int64_t i = 0; i < elements; i += kLine) __builtin_prefetch(p + i, 0, kCache);
}

TENON_INLINE float load_one(const float* p) {
  return *p;
}
TENON_INLINE float load_one(const Bf16* p) {
  const std::uint32_t word = static_cast<std::uint32_t>(p->bits) << 16;
  float r;
  __builtin_memcpy(&r, &word, sizeof r);
  return r;
}

TENON_INLINE void store_one(float* p, float value) {
  *p = value;
}
TENON_INLINE void store_one(Bf16* p, float value) {
  store(p, splat(value), 1);
}

/// Folds the lanes by halves: lane l with lane l + 8, then + 4, + 2, + 1.
template <class Fn>
TENON_INLINE float fold(F a, Fn fn) {
  Quad q[4];
  __builtin_memcpy(q, &a, sizeof q);
  const Quad low = fn(q[0], q[2]), high = fn(q[1], q[3]);
  const Quad four = fn(low, high);
  const Quad two = fn(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  return fn(two, __builtin_shufflevector(two, two, 1, 0, 3, 2))[0];
}
TENON_INLINE float sum_lanes(F a) {
  return fold(a, [](auto x, auto y) { return x + y; });
}
TENON_INLINE float max_lanes(F a) {
  return fold(a, [](auto x, auto y) { return x > y ? x : y; });
}

constexpr std::int32_t kLaneIndex[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
/// first, first + 1, ... first + 15.
TENON_INLINE I lanes_from(std::int64_t first) {
  I lanes;
  __builtin_memcpy(&lanes, kLaneIndex, sizeof lanes);
  return lanes + splat_int(static_cast<std::int32_t>(first));
}
/// All-ones in the first n lanes.
TENON_INLINE I first_lanes(std::int64_t n) {
  return lanes_from(0) < splat_int(static_cast<std::int32_t>(n));
}

/// Calls fn(offset, count) for successive groups of 16 of [begin, end); count < 16 only in the last.
template <class Fn>
TENON_INLINE void for_lanes(std::int64_t begin, std::int64_t end, Fn fn) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) fn(i, std::int64_t{kLanes});
  if (i < end) fn(i, end - i);
}
template <class S>
TENON_INLINE F load_group(const S* p, std::int64_t count) {
  return count == kLanes ? load(p) : load(p, count);
}
template <class S>
TENON_INLINE void store_group(S* p, F a, std::int64_t count) {
  if (count == kLanes)
    store(p, a);
  else
    store(p, a, count);
}

}  // namespace
}  // namespace tenon::kernels
