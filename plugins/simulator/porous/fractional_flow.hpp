// The share of water in the flow of water and oil, with quadratic relative permeabilities:
//   f(S) = S^2 / (S^2 + a (1 - S)^2),  a = viscosity of water / viscosity of oil.
#pragma once

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

}  // namespace tenon::porous
