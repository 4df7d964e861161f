// The AVX-512 functions that the kernels call, as loops over lanes. Put before isa/table.cpp it makes the
// kernel set of 64-byte registers run on processors without AVX-512: its blocks, orders and remainders are
// tested there, bit for bit. Only tests are compiled with it. The compiler splits arithmetic of 64-byte
// vectors by itself. Masks are honoured, as a lane that is masked off must not be read or written.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tenon::kernels {
namespace {
namespace loops {

#define TENON_LOOPS inline __attribute__((always_inline))

template <class T, class V>
struct Lanes {
  static constexpr int kCount = static_cast<int>(sizeof(V) / sizeof(T));
  T at[kCount];
};
template <class T, class V>
TENON_LOOPS Lanes<T, V> lanes(V v) {
  Lanes<T, V> l;
  __builtin_memcpy(&l, &v, sizeof v);
  return l;
}
/// The vector whose lane i is of(i).
template <class V, class T, class Fn>
TENON_LOOPS V vector_of(Fn of) {
  Lanes<T, V> l;
  for (int i = 0; i < Lanes<T, V>::kCount; ++i) l.at[i] = of(i);
  V v;
  __builtin_memcpy(&v, &l, sizeof v);
  return v;
}
/// The same, with zeros where the mask has none.
template <class V, class T, class Mask, class Fn>
TENON_LOOPS V masked(Mask mask, Fn of) {
  return vector_of<V, T>([&](int i) { return (mask >> i & 1) != 0 ? of(i) : T{}; });
}
template <class T, class Mask>
TENON_LOOPS __m512i load(Mask mask, const void* from) {
  return masked<__m512i, T>(mask, [&](int i) {
    T value;
    __builtin_memcpy(&value, static_cast<const char*>(from) + i * sizeof(T), sizeof value);
    return value;
  });
}
template <class T, class V, class Mask>
TENON_LOOPS void store(void* to, Mask mask, V v) {
  const auto l = lanes<T>(v);
  for (int i = 0; i < l.kCount; ++i)
    if ((mask >> i & 1) != 0) __builtin_memcpy(static_cast<char*>(to) + i * sizeof(T), &l.at[i], sizeof(T));
}

// Arithmetic of floats.

TENON_LOOPS __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
  const auto x = lanes<float>(a), y = lanes<float>(b), z = lanes<float>(c);
  return vector_of<__m512, float>([&](int i) { return __builtin_fmaf(x.at[i], y.at[i], z.at[i]); });
}
TENON_LOOPS __m512 fnmsub_ps(__m512 a, __m512 b, __m512 c) {
  const auto x = lanes<float>(a), y = lanes<float>(b), z = lanes<float>(c);
  return vector_of<__m512, float>([&](int i) { return __builtin_fmaf(-x.at[i], y.at[i], -z.at[i]); });
}
/// Rounds towards zero, the one direction that the kernels ask for.
template <int rounding>
TENON_LOOPS __m512 fmadd_round_ps(__mmask16 mask, __m512 a, __m512 b, __m512 c) {
  static_assert(rounding == (_MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
  const auto x = lanes<float>(a), y = lanes<float>(b), z = lanes<float>(c);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x6000u);
  const __m512 result = masked<__m512, float>(mask, [&](int i) {
    float sum = z.at[i];
    __asm__ volatile("vfmadd231ss %2, %1, %0" : "+x"(sum) : "x"(x.at[i]), "x"(y.at[i]));
    return sum;
  });
  _mm_setcsr(before);
  return result;
}
TENON_LOOPS __m512 max_ps(__mmask16 mask, __m512 a, __m512 b) {
  const auto x = lanes<float>(a), y = lanes<float>(b);
  return masked<__m512, float>(mask, [&](int i) { return x.at[i] > y.at[i] ? x.at[i] : y.at[i]; });
}
TENON_LOOPS __m512 min_ps(__mmask16 mask, __m512 a, __m512 b) {
  const auto x = lanes<float>(a), y = lanes<float>(b);
  return masked<__m512, float>(mask, [&](int i) { return x.at[i] < y.at[i] ? x.at[i] : y.at[i]; });
}
TENON_LOOPS __m512 sqrt_ps(__mmask16 mask, __m512 a) {
  const auto x = lanes<float>(a);
  return masked<__m512, float>(mask, [&](int i) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x.at[i]))); });
}
/// a 2^b for whole b, rounded once.
TENON_LOOPS __m512 scalef_ps(__mmask16 mask, __m512 a, __m512 b) {
  const auto x = lanes<float>(a), power = lanes<float>(b);
  return masked<__m512, float>(
      mask, [&](int i) { return __builtin_ldexpf(x.at[i], static_cast<int>(power.at[i])); });
}

// Arithmetic of integers.

TENON_LOOPS __m512i max_epi32(__mmask16 mask, __m512i a, __m512i b) {
  const auto x = lanes<std::int32_t>(a), y = lanes<std::int32_t>(b);
  return masked<__m512i, std::int32_t>(mask, [&](int i) { return x.at[i] > y.at[i] ? x.at[i] : y.at[i]; });
}
TENON_LOOPS __m512i max_epu16(__mmask32 mask, __m512i a, __m512i b) {
  const auto x = lanes<std::uint16_t>(a), y = lanes<std::uint16_t>(b);
  return masked<__m512i, std::uint16_t>(mask, [&](int i) { return x.at[i] > y.at[i] ? x.at[i] : y.at[i]; });
}
TENON_LOOPS __m512i mul_epu32(__mmask8 mask, __m512i a, __m512i b) {
  const auto x = lanes<std::uint64_t>(a), y = lanes<std::uint64_t>(b);
  return masked<__m512i, std::uint64_t>(
      mask, [&](int i) { return (x.at[i] & 0xffffffffu) * (y.at[i] & 0xffffffffu); });
}
/// Bit by bit, the one of the table that the bits of a, b and c number.
template <int table>
TENON_LOOPS __m512i ternarylogic(__m512i a, __m512i b, __m512i c) {
  const auto x = lanes<std::uint64_t>(a), y = lanes<std::uint64_t>(b), z = lanes<std::uint64_t>(c);
  return vector_of<__m512i, std::uint64_t>([&](int i) {
    std::uint64_t result = 0;
    for (int row = 0; row < 8; ++row)
      if ((table >> row & 1) != 0)
        result |= ((row & 4) != 0 ? x.at[i] : ~x.at[i]) & ((row & 2) != 0 ? y.at[i] : ~y.at[i]) &
                  ((row & 1) != 0 ? z.at[i] : ~z.at[i]);
    return result;
  });
}
TENON_LOOPS __mmask16 cmpgt_epi32_mask(__m512i a, __m512i b) {
  const auto x = lanes<std::int32_t>(a), y = lanes<std::int32_t>(b);
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= x.at[i] > y.at[i] ? 1u << i : 0u;
  return static_cast<__mmask16>(mask);
}

// Lanes moved.

TENON_LOOPS __m512 permutexvar_ps(__mmask16 mask, __m512i order, __m512 a) {
  const auto from = lanes<std::int32_t>(order);
  const auto x = lanes<float>(a);
  return masked<__m512, float>(mask, [&](int i) { return x.at[from.at[i] & 15]; });
}
TENON_LOOPS __m512i permutexvar_epi16(__mmask32 mask, __m512i order, __m512i a) {
  const auto from = lanes<std::uint16_t>(order), x = lanes<std::uint16_t>(a);
  return masked<__m512i, std::uint16_t>(mask, [&](int i) { return x.at[from.at[i] & 31]; });
}
template <class T, class Mask>
TENON_LOOPS __m512i permutex2var(Mask mask, __m512i a, __m512i order, __m512i b) {
  const auto from = lanes<T>(order), x = lanes<T>(a), y = lanes<T>(b);
  return masked<__m512i, T>(mask, [&](int i) {
    const int at = static_cast<int>(from.at[i]) & (2 * x.kCount - 1);
    return at < x.kCount ? x.at[at] : y.at[at - x.kCount];
  });
}
TENON_LOOPS __m512i unpack_epi64(__mmask8 mask, __m512i a, __m512i b, int high) {
  const auto x = lanes<std::uint64_t>(a), y = lanes<std::uint64_t>(b);
  return masked<__m512i, std::uint64_t>(
      mask, [&](int i) { return i % 2 == 0 ? x.at[i + high] : y.at[i - 1 + high]; });
}
TENON_LOOPS __m512 shuffle_ps(__mmask16 mask, __m512 a, __m512 b, int order) {
  const auto x = lanes<float>(a), y = lanes<float>(b);
  return masked<__m512, float>(mask, [&](int i) {
    const int at = i / 4 * 4 + (order >> 2 * (i % 4) & 3);
    return i % 4 < 2 ? x.at[at] : y.at[at];
  });
}
TENON_LOOPS __m512i shuffle_epi32(__m512i otherwise, __mmask16 mask, __m512i a, int order) {
  const auto x = lanes<std::int32_t>(a), kept = lanes<std::int32_t>(otherwise);
  return vector_of<__m512i, std::int32_t>([&](int i) {
    return (mask >> i & 1) != 0 ? x.at[i / 4 * 4 + (order >> 2 * (i % 4) & 3)] : kept.at[i];
  });
}
TENON_LOOPS __m512i shuffle_i32x4(__mmask16 mask, __m512i a, __m512i b, int order) {
  const auto x = lanes<std::int32_t>(a), y = lanes<std::int32_t>(b);
  return masked<__m512i, std::int32_t>(mask, [&](int i) {
    const int at = 4 * (order >> 2 * (i / 4) & 3) + i % 4;
    return i < 8 ? x.at[at] : y.at[at];
  });
}
TENON_LOOPS __m512i set_epi64(long long e7, long long e6, long long e5, long long e4, long long e3,
                              long long e2, long long e1, long long e0) {
  const long long all[] = {e0, e1, e2, e3, e4, e5, e6, e7};
  return vector_of<__m512i, long long>([&](int i) { return all[i]; });
}

// Wider and narrower lanes.

template <class T, class V>
TENON_LOOPS __m512i widened(__mmask16 mask, V a) {
  const auto x = lanes<T>(a);
  return masked<__m512i, std::int32_t>(mask, [&](int i) { return static_cast<std::int32_t>(x.at[i]); });
}
template <class V, class T>
TENON_LOOPS V narrowed(__mmask16 mask, __m512i a) {
  const auto x = lanes<std::uint32_t>(a);
  return masked<V, T>(mask, [&](int i) { return static_cast<T>(x.at[i]); });
}

// Bfloat16. Subnormals count as zero, in operands and results, whatever the state of the processor says.

TENON_LOOPS float without_subnormal(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
/// Number i of the pair that the lane holds, 1 being the upper half.
TENON_LOOPS float half_of(std::uint32_t pair, int i) {
  const std::uint32_t bits = i == 1 ? pair & 0xffff0000u : pair << 16;
  return without_subnormal(__builtin_bit_cast(float, bits));
}
TENON_LOOPS __m512 dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
  const auto x = lanes<std::uint32_t>(a), y = lanes<std::uint32_t>(b);
  const auto before = lanes<float>(sum);
  return vector_of<__m512, float>([&](int lane) {
    float result = without_subnormal(before.at[lane]);
    for (int i = 1; i >= 0; --i)
      result = without_subnormal(result + half_of(x.at[lane], i) * half_of(y.at[lane], i));
    return result;
  });
}
TENON_LOOPS __m512bh cvtne2ps_pbh(__m512 high, __m512 low) {
  const auto x = lanes<float>(low), y = lanes<float>(high);
  return vector_of<__m512bh, std::uint16_t>([&](int i) {
    const float value = without_subnormal(i < 16 ? x.at[i] : y.at[i - 16]);
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  });
}

}  // namespace loops
}  // namespace
}  // namespace tenon::kernels

// Some of these are macros of the compiler's own header.
#undef _mm512_fmadd_ps
#undef _mm512_fnmsub_ps
#undef _mm512_maskz_fmadd_round_ps
#undef _mm512_maskz_max_ps
#undef _mm512_maskz_min_ps
#undef _mm512_maskz_sqrt_ps
#undef _mm512_maskz_scalef_ps
#undef _mm512_maskz_max_epi32
#undef _mm512_maskz_max_epu16
#undef _mm512_maskz_mul_epu32
#undef _mm512_ternarylogic_epi32
#undef _mm512_ternarylogic_epi64
#undef _mm512_cmpgt_epi32_mask
#undef _mm512_maskz_permutexvar_ps
#undef _mm512_maskz_permutexvar_epi16
#undef _mm512_maskz_permutex2var_epi32
#undef _mm512_maskz_permutex2var_epi64
#undef _mm512_maskz_unpacklo_epi64
#undef _mm512_maskz_unpackhi_epi64
#undef _mm512_maskz_shuffle_ps
#undef _mm512_mask_shuffle_epi32
#undef _mm512_maskz_shuffle_i32x4
#undef _mm512_set_epi64
#undef _mm512_maskz_cvtepu8_epi32
#undef _mm512_maskz_cvtepu16_epi32
#undef _mm512_maskz_cvtepi32_epi8
#undef _mm512_maskz_cvtepi32_epi16
#undef _mm512_maskz_loadu_ps
#undef _mm512_maskz_loadu_epi32
#undef _mm512_mask_storeu_ps
#undef _mm512_mask_storeu_epi32
#undef _mm512_maskz_loadu_epi16
#undef _mm512_storeu_si512
#undef _mm512_loadu_si512
#undef _mm512_loadu_ps
#undef _mm512_storeu_ps
#undef _mm512_setzero_ps
#undef _mm512_set1_epi32
#undef _mm512_dpbf16_ps
#undef _mm512_cvtne2ps_pbh
#define _mm512_fmadd_ps loops::fmadd_ps
#define _mm512_fnmsub_ps loops::fnmsub_ps
#define _mm512_maskz_fmadd_round_ps(mask, a, b, c, rounding) loops::fmadd_round_ps<rounding>(mask, a, b, c)
#define _mm512_maskz_max_ps loops::max_ps
#define _mm512_maskz_min_ps loops::min_ps
#define _mm512_maskz_sqrt_ps loops::sqrt_ps
#define _mm512_maskz_scalef_ps loops::scalef_ps
#define _mm512_maskz_max_epi32 loops::max_epi32
#define _mm512_maskz_max_epu16 loops::max_epu16
#define _mm512_maskz_mul_epu32 loops::mul_epu32
#define _mm512_ternarylogic_epi32(a, b, c, table) loops::ternarylogic<table>(a, b, c)
#define _mm512_ternarylogic_epi64(a, b, c, table) loops::ternarylogic<table>(a, b, c)
#define _mm512_cmpgt_epi32_mask loops::cmpgt_epi32_mask
#define _mm512_maskz_permutexvar_ps loops::permutexvar_ps
#define _mm512_maskz_permutexvar_epi16 loops::permutexvar_epi16
#define _mm512_maskz_permutex2var_epi32 loops::permutex2var<std::uint32_t>
#define _mm512_maskz_permutex2var_epi64 loops::permutex2var<std::uint64_t>
#define _mm512_maskz_unpacklo_epi64(mask, a, b) loops::unpack_epi64(mask, a, b, 0)
#define _mm512_maskz_unpackhi_epi64(mask, a, b) loops::unpack_epi64(mask, a, b, 1)
#define _mm512_maskz_shuffle_ps loops::shuffle_ps
#define _mm512_mask_shuffle_epi32 loops::shuffle_epi32
#define _mm512_maskz_shuffle_i32x4 loops::shuffle_i32x4
#define _mm512_set_epi64 loops::set_epi64
#define _mm512_maskz_cvtepu8_epi32 loops::widened<std::uint8_t>
#define _mm512_maskz_cvtepu16_epi32 loops::widened<std::uint16_t>
#define _mm512_maskz_cvtepi32_epi8 loops::narrowed<__m128i, std::uint8_t>
#define _mm512_maskz_cvtepi32_epi16 loops::narrowed<__m256i, std::uint16_t>
#define _mm512_maskz_loadu_ps(mask, from) (__m512) loops::load<float>(mask, from)
#define _mm512_maskz_loadu_epi32 loops::load<std::int32_t>
#define _mm512_mask_storeu_ps(to, mask, a) loops::store<float>(to, mask, a)
#define _mm512_mask_storeu_epi32 loops::store<std::int32_t>
#define _mm512_storeu_si512(to, a) loops::store<std::uint64_t>(to, std::uint8_t{0xff}, a)
#define _mm512_maskz_loadu_epi16 loops::load<std::uint16_t>
#define _mm512_loadu_si512(from) loops::load<std::uint64_t>(std::uint8_t{0xff}, from)
#define _mm512_loadu_ps(from) (__m512) loops::load<float>(std::uint16_t{0xffff}, from)
#define _mm512_storeu_ps(to, a) loops::store<float>(to, std::uint16_t{0xffff}, a)
#define _mm512_setzero_ps() (__m512{})
#define _mm512_set1_epi32(x) loops::vector_of<__m512i, std::int32_t>([&](int) { return x; })
#define _mm512_dpbf16_ps loops::dpbf16_ps
#define _mm512_cvtne2ps_pbh loops::cvtne2ps_pbh
