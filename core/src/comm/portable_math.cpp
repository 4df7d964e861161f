// Functions of <tenon/portable_math.hpp> by series whose lengths are fixed.
#include <tenon/portable_math.hpp>

#include <cmath>

TENON_ABI_BEGIN

// x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)).
double portable_log(double x) noexcept {
  constexpr double kLn2 = 0.69314718055994530942;
  constexpr double kSqrtHalf = 0.70710678118654752440;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < kSqrtHalf) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * s2;
  return exponent * kLn2 + (2 * s * sum + 2 * s);
}

// Taylor series (truncation below 1e-17).
double portable_expm1(double x) noexcept {
  double sum = 1;
  for (int k = 19; k >= 2; --k) sum = 1 + sum * x / k;
  return x * sum;
}

// e^x = 2^n e^r with |r| <= ln(2) / 2; ln 2 in two parts, so that n times the first is exact.
double portable_exp(double x) noexcept {
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const double n = std::floor(x * 1.44269504088896340736 + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  return std::ldexp(1 + portable_expm1(r), static_cast<int>(n));
}

namespace {

// cos(pi/2 f) and sin(pi/2 f) for f in [0, 1/2], by Taylor series (truncation below 1e-17).
double quarter_cos(double f) noexcept {
  constexpr double kHalfPi = 1.57079632679489661923;
  const double a2 = (kHalfPi * f) * (kHalfPi * f);
  double sum = 1;
  for (int k = 16; k >= 2; k -= 2) sum = 1 - sum * a2 / ((k - 1) * k);
  return sum;
}
double quarter_sin(double f) noexcept {
  constexpr double kHalfPi = 1.57079632679489661923;
  const double a = kHalfPi * f;
  const double a2 = a * a;
  double sum = 1;
  for (int k = 17; k >= 3; k -= 2) sum = 1 - sum * a2 / ((k - 1) * k);
  return a * sum;
}

}  // namespace

// The split into quadrants is exact.
TurnPoint portable_turn(double turns) noexcept {
  const double x = 4 * turns;
  const int quadrant = static_cast<int>(x);
  const double f = x - quadrant;
  const double cosine = f <= 0.5 ? quarter_cos(f) : quarter_sin(1 - f);
  const double sine = f <= 0.5 ? quarter_sin(f) : quarter_cos(1 - f);
  switch (quadrant) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

TENON_ABI_END
