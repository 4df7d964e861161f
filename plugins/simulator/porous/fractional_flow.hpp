// The share of water in the flow of water and oil, with quadratic relative permeabilities:
//   f(S) = S^2 / (S^2 + a (1 - S)^2),  a = viscosity of water / viscosity of oil.
#pragma once

#include <algorithm>

namespace tenon::porous {

struct FractionalFlow {
  double ratio = 1;  ///< a

  double flow(double saturation) const {
    const double water = saturation * saturation, oil = ratio * (1 - saturation) * (1 - saturation);
    return water / (water + oil);
  }
  /// f'(S), never negative.
  double slope(double saturation) const {
    const double water = saturation * saturation, oil = ratio * (1 - saturation) * (1 - saturation);
    return 2 * ratio * saturation * (1 - saturation) / ((water + oil) * (water + oil));
  }
  /// max f' over [0, 1], rounded up in the last digits: it bounds time steps.
  double steepest() const;
};

// f' rises from 0 to one maximum and falls to 0 again.
inline double FractionalFlow::steepest() const {
  double low = 0, high = 1;
  for (int i = 0; i < 200; ++i) {
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    (slope(left) < slope(right) ? low : high) = slope(left) < slope(right) ? left : right;
  }
  return std::max(slope(low), slope(high)) * (1 + 1e-12);
}

}  // namespace tenon::porous
