// exp, log, tanh, erf on 16 lanes. Bounds are stated in elementwise.hpp and tested over their ranges.
// Polynomials are minimax fits (Lawson iteration) of the function named beside each, coefficients rounded to
// float; the fit errors, stated relative to the result, are below 2^-25. Rounding to an integer uses the 1.5
// x 2^23 trick, which needs no instruction beyond addition and has the same bits everywhere.
#pragma once

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

template <int n>
TENON_INLINE F polynomial(F x, const float (&coefficients)[n]) {
  F r = splat(coefficients[n - 1]);
#pragma GCC unroll 16
  for (int i = n - 2; i >= 0; --i) r = mul_add(r, x, splat(coefficients[i]));
  return r;
}

constexpr float kLn2High = 0.693359375f;  // 11 significant bits: products with |n| < 2^13 are exact
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kRoundMagic = 12582912.0f;

/// x 2^n for n in [-252, 254], n = magic - kRoundMagic; as two exact factors so that subnormal results are
/// rounded once, which AVX-512 has an instruction for.
TENON_INLINE F scale_by_power(F x, F magic) {
#if TENON_SIMD_BYTES == 64
  const Part power = magic.v[0] - splat(kRoundMagic).v[0];
  return F{{(Part)_mm512_maskz_scalef_ps(__mmask16{0xffff}, (__m512)x.v[0], (__m512)power)}};
#else
  const I n = bits_of(magic) - splat_int(0x4b400000);
  const I half = shift_right(n, 1);
  const F first = from_bits(shift_left(half + splat_int(127), 23));
  const F second = from_bits(shift_left(n - half + splat_int(127), 23));
  return x * first * second;
#endif
}

TENON_INLINE F exp(F x) {
  // (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2
  constexpr float c[] = {0.49999994f, 0.166665196f, 0.0416683927f, 0.00836878084f, 0.00138144626f};
  // Beyond these the result is 0 or infinity all the same; the order of operands keeps NaN.
  const F t = max(splat(-104.0f), min(splat(89.0f), x));
  const F magic = mul_add(t, splat(1.44269504f), splat(kRoundMagic));
  const F n = magic - splat(kRoundMagic);
  const F r = mul_add(n, splat(-kLn2Low), mul_add(n, splat(-kLn2High), t));
  const F p = mul_add(polynomial(r, c), r * r, r) + splat(1.0f);
  return scale_by_power(p, magic);
}

TENON_INLINE F log(F x) {
  // (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) - 1 <= f <= sqrt(2) - 1
  constexpr float c[] = {0.333333135f,  -0.250000089f, 0.200021192f,  -0.166679949f, 0.142195493f,
                         -0.124055944f, 0.118881896f,  -0.116756298f, 0.0674655437f};
  const I tiny = x < splat(1.17549435e-38f);
  const F y = select(tiny, x * splat(8388608.0f), x);
  // Exponent such that the significand is in [sqrt(1/2), sqrt(2)).
  const I shifted = bits_of(y) - splat_int(0x3f3504f3);
  const I exponent = shift_right(shifted, 23);
  const F f = from_bits((shifted & splat_int(0x007fffff)) + splat_int(0x3f3504f3)) - splat(1.0f);
  const F e = to_float_lanes(exponent) - select(tiny, splat(23.0f), splat(0.0f));
  const F square = f * f;
  F tail = mul_add(polynomial(f, c) * f, square, e * splat(kLn2Low));
  tail = mul_add(square, splat(-0.5f), tail);
  F r = mul_add(e, splat(kLn2High), f + tail);
  const F infinity = splat(__builtin_inff());
  r = select(x == infinity, infinity, r);
  r = select(x == splat(0.0f), splat(-__builtin_inff()), r);
  // A NaN is neither below zero nor equal to itself.
  r = select(x < splat(0.0f), splat(__builtin_nanf("")), r);
  return select(x == x, r, x);
}

TENON_INLINE F tanh(F x) {
  // (tanh(x) - x) / x^3 in x^2 on 0 <= x <= 0.625
  constexpr float c[] = {-0.333332807f, 0.133314416f, -0.0537397191f, 0.0206390955f, -0.00570499431f};
  const F square = x * x;
  const F small = mul_add(polynomial(square, c) * square, x, x);
  const F a = abs(x);
  const F large = splat(1.0f) - splat(2.0f) / (exp(a + a) + splat(1.0f));
  return select(a < splat(0.625f), small, with_sign_of(large, x));
}

TENON_INLINE F erf(F x) {
  // (erf(x) - x) / x in x^2 on 0 <= x <= 0.92
  constexpr float c[] = {0.128379151f,   -0.376124978f,  0.11281848f,
                         -0.0267677642f, 0.00499488134f, -0.000599962426f};
  // log(1 - erf(x)) / x + 1 on 0.9 <= x <= 4; erf is 1 in float from 3.92 on
  constexpr float d[] = {-0.128637075f,   -0.635197997f,   -0.106159069f,   0.023694586f,
                         -0.00361035159f, 0.000314860546f, -1.04333685e-05f};
  const F small = mul_add(polynomial(x * x, c), x, x);
  const F a = min(splat(4.0f), abs(x));
  const F large = splat(1.0f) - exp(mul_add(polynomial(a, d), a, splat(0.0f) - a));
  return select(abs(x) < splat(0.92f), small, with_sign_of(large, x));
}

}  // namespace
}  // namespace tenon::kernels
