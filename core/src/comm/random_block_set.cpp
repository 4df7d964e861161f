// The table of random_blocks.hpp for one instruction set, TENON_RANDOM_SET. The operations of
// portable_math.cpp and random.cpp in their order on every lane; where those choose by a value, both sides
// are computed or masked. All code has internal linkage, and none of the standard library is called: an
// inline function that this file shared with others could run on a processor without the instructions.
#include "comm/random_blocks.hpp"

#include <cstddef>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(__AVX512F__)
#define TENON_RANDOM_BYTES 64
#elif defined(__AVX2__)
#define TENON_RANDOM_BYTES 32
#else
#define TENON_RANDOM_BYTES 16
#endif
#define TENON_RANDOM_NAME_(set) random_blocks_##set
#define TENON_RANDOM_NAME(set) TENON_RANDOM_NAME_(set)
#define TENON_RANDOM_TEXT_(set) #set
#define TENON_RANDOM_TEXT(set) TENON_RANDOM_TEXT_(set)

namespace tenon::comm {

const RandomBlocks* TENON_RANDOM_NAME(TENON_RANDOM_SET)();

namespace {

typedef double Real __attribute__((vector_size(TENON_RANDOM_BYTES)));
typedef std::uint64_t Bits __attribute__((vector_size(TENON_RANDOM_BYTES)));
constexpr int kWidth = TENON_RANDOM_BYTES / 8;

inline Bits bits_of(Real x) {
  return (Bits)x;
}
inline Real real_of(Bits x) {
  return (Real)x;
}
inline Bits chosen(Bits mask, Bits yes, Bits no) {
  return (mask & yes) | (~mask & no);
}
inline Real chosen(Bits mask, Real yes, Real no) {
  return real_of(chosen(mask, bits_of(yes), bits_of(no)));
}
inline Bits all(std::uint64_t x) {
  return x + Bits{};
}
inline Real all(double x) {
  return x + Real{};
}

/// Products of the low halves of lanes.
inline Bits low_products(Bits a, Bits b) {
#if TENON_RANDOM_BYTES == 64
  return (Bits)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif TENON_RANDOM_BYTES == 32
  return (Bits)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Bits)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

inline Real roots(Real x) {
#if TENON_RANDOM_BYTES == 64
  return (Real)_mm512_sqrt_pd((__m512d)x);
#elif TENON_RANDOM_BYTES == 32
  return (Real)_mm256_sqrt_pd((__m256d)x);
#elif defined(__SSE2__)
  return (Real)_mm_sqrt_pd((__m128d)x);
#else
  for (int i = 0; i < kWidth; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}

struct Words {
  Bits first, second;  ///< words 0 and 1, and words 2 and 3, as 64 bits
};

// Philox4x32-10. A word is the low half of its lane; the high halves hold what no product reads.
inline Words philox(const std::uint32_t* key, std::uint64_t step, std::uint64_t first) {
  Bits index = all(first);
  for (int i = 0; i < kWidth; ++i) index[i] += static_cast<std::uint64_t>(i);
  Bits a = index, b = index >> 32, c = all(step), d = all(step >> 32);
  std::uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const Bits p = low_products(a, all(std::uint64_t{0xd2511f53u}));
    const Bits q = low_products(c, all(std::uint64_t{0xcd9e8d57u}));
    a = (q >> 32) ^ b ^ all(std::uint64_t{k0});
    b = q;
    c = (p >> 32) ^ d ^ all(std::uint64_t{k1});
    d = p;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {(a << 32) | (b & 0xffffffffu), (c << 32) | (d & 0xffffffffu)};
}

/// Integers up to 2^53: sums of two parts, none of which rounds.
inline Real reals_of(Bits x) {
  const Real high = real_of((x >> 32) | 0x4530000000000000u);         // 2^84 + 2^32 (x >> 32)
  const Real low = real_of((x & 0xffffffffu) | 0x4330000000000000u);  // 2^52 + the rest
  return (high - (0x1p84 + 0x1p52)) + low;
}

/// portable_log() of normal numbers.
inline Real logs(Real x) {
  constexpr double kLn2 = 0.69314718055994530942;
  constexpr double kSqrtHalf = 0.70710678118654752440;
  const Bits bits = bits_of(x);
  const Real half = real_of((bits & 0x000fffffffffffffu) | 0x3fe0000000000000u);
  const Bits small = (Bits)(half < kSqrtHalf);  // all ones, so that its sum with an integer is one less
  const Real mantissa = chosen(small, half * 2.0, half);
  const Bits exponent = (bits >> 52) - 1022u + small;
  const Real e = real_of(exponent + 0x4338000000000000u) - 0x1.8p52;
  const Real s = (mantissa - 1.0) / (mantissa + 1.0);
  const Real s2 = s * s;
  Real sum = all(0.0);
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * s2;
  return e * kLn2 + (2.0 * s * sum + 2.0 * s);
}

/// portable_turn(x 2^-53).cosine of integers below 2^53.
inline Real cosines(Bits x) {
  constexpr double kHalfPi = 1.57079632679489661923;
  const Bits quadrant = x >> 51;
  const Real f = reals_of(x & 0x0007ffffffffffffu) * 0x1p-51;
  const Bits beyond = (Bits)(f > 0.5);
  const Bits odd = 0u - (quadrant & 1u);
  const Bits sine = beyond ^ odd;
  const Real a = kHalfPi * chosen(beyond, 1.0 - f, f);
  const Real a2 = a * a;
  Real sum = all(1.0);
  for (int k = 16; k >= 2; k -= 2) {
    const Real divisor =
        chosen(sine, all(static_cast<double>(k * (k + 1))), all(static_cast<double>((k - 1) * k)));
    sum = 1.0 - sum * a2 / divisor;
  }
  const Bits minus = ((quadrant ^ (quadrant >> 1)) & 1u) << 63;
  return real_of(bits_of(chosen(sine, a * sum, sum)) ^ minus);
}

inline Real normals_of(Words words) {
  const Real u1 = reals_of((words.first >> 11) + 1u) * 0x1p-53;
  return roots(-2.0 * logs(u1)) * cosines(words.second >> 11);
}

/// values(at) for vectors from 0, and of the last as many lanes as are left.
template <class Values>
inline void store_all(std::int64_t count, double* out, Values values) {
  std::int64_t at = 0;
  for (; at + kWidth <= count; at += kWidth) {
    const Real here = values(at);
    __builtin_memcpy(out + at, &here, sizeof here);
  }
  if (at == count) return;
  const Real here = values(at);
  __builtin_memcpy(out + at, &here, static_cast<std::size_t>(count - at) * sizeof(double));
}

void draw_normals(const std::uint32_t* key, std::uint64_t step, std::uint64_t first, std::int64_t count,
                  double* out) {
  store_all(count, out, [&](std::int64_t at) {
    return normals_of(philox(key, step, first + static_cast<std::uint64_t>(at)));
  });
}

void draw_uniforms(const std::uint32_t* key, std::uint64_t step, std::uint64_t first, std::int64_t count,
                   double* out) {
  store_all(count, out, [&](std::int64_t at) {
    return reals_of(philox(key, step, first + static_cast<std::uint64_t>(at)).first >> 11) * 0x1p-53;
  });
}

void turn_normals(const std::uint64_t* radii, const std::uint64_t* angles, std::int64_t count, double* out) {
  store_all(count, out, [&](std::int64_t at) {
    const std::int64_t left = count - at;
    const auto bytes = static_cast<std::size_t>(left < kWidth ? left : kWidth) * sizeof(std::uint64_t);
    Words words{};
    __builtin_memcpy(&words.first, radii + at, bytes);
    __builtin_memcpy(&words.second, angles + at, bytes);
    return normals_of(words);
  });
}

constexpr RandomBlocks kTable{TENON_RANDOM_TEXT(TENON_RANDOM_SET), draw_normals, draw_uniforms, turn_normals};

}  // namespace

const RandomBlocks* TENON_RANDOM_NAME(TENON_RANDOM_SET)() {
  return &kTable;
}

}  // namespace tenon::comm
