#include "fractional_flow.hpp"

#include <algorithm>

namespace tenon::porous {

// f' rises from 0 to one maximum and falls to 0 again.
double FractionalFlow::steepest() const {
  double low = 0, high = 1;
  for (int i = 0; i < 200; ++i) {
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    (slope(left) < slope(right) ? low : high) = slope(left) < slope(right) ? left : right;
  }
  return std::max(slope(low), slope(high)) * (1 + 1e-12);
}

}  // namespace tenon::porous
