// Functions of real numbers made of IEEE additions, multiplications and divisions alone, never of libm: their
// last bits differ between C libraries and processors there, and a number that a run depends on must be the
// same on every machine. Compiled once, in libtenon_core, without contraction.
#pragma once

#include <tenon/abi.hpp>

TENON_ABI_BEGIN

/// ln x for x > 0.
double portable_log(double x) noexcept;
/// e^x.
double portable_exp(double x) noexcept;
/// e^x - 1 for |x| <= 1.
double portable_expm1(double x) noexcept;

/// Cosine and sine of an angle.
struct TurnPoint {
  double cosine = 1, sine = 0;
};
/// The point at `turns` whole turns, the angle 2 pi turns, for turns in [0, 1).
TurnPoint portable_turn(double turns) noexcept;

TENON_ABI_END
