// A periodic Gaussian random field as the initial vorticity (the generator of Li et al. 2010.08895). It is
// the real part of the field with spectrum  n^2 sqrt(2) tau^((2 alpha - 2) / 2) (4 pi^2 |k|^2 +
// tau^2)^(-alpha / 2) (xi + i eta), xi and eta standard normal, without the mean.
#pragma once

#include <tenon/simulator.hpp>

#include <span>

namespace tenon::navier_stokes {

struct RandomVorticity {
  std::size_t grid = 64;
  double alpha = 2.5;
  double tau = 7;

  /// Writes values [x][y]; draws are keyed by (seed, index, mode of this grid).
  void draw(const SimulationTask& task, std::span<double> out) const;
  /// Writes the field of given xi and eta, [kx][ky][2] with both frequencies in the order of a transform.
  void from_normals(std::span<const double> normals, std::span<double> out) const;
};

}  // namespace tenon::navier_stokes
