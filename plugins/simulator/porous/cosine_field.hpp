// Gaussian random fields on the unit square without flux over the boundary, as sums of cosines:
//   g = sum over k of  tau^(alpha - 1) (pi^2 |k|^2 + tau^2)^(-alpha / 2) xi_k c_k1 c_k2 cos(pi k1 x) cos(pi
//   k2 y),
// covariance tau^(2 alpha - 2) (-lap + tau^2)^(-alpha), c_0 = 1 and else sqrt 2, without the mean.
#pragma once

#include <tenon/random.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::porous {

struct CosineField {
  enum class Points { kNodes, kCentres };  ///< i / (n - 1), or (i + 1/2) / n

  std::size_t points = 0;  ///< n per side, and the number of cosines per side
  Points at = Points::kNodes;
  double alpha = 2, tau = 3;

  /// Returns values [x][y]. Draw (step, k1 n + k2) is xi_k.
  std::vector<double> draw(RandomKey key, std::uint64_t step) const;
  /// Returns the field of given xi, [k1][k2].
  std::vector<double> from_normals(std::span<const double> normals) const;
  /// Returns the square root of the variance's mean over the square.
  double deviation() const;

 private:
  double amplitude(std::size_t k1, std::size_t k2) const;
};

}  // namespace tenon::porous
