// The vorticity of a flow on the unit torus: random initial states, and the solver.
#pragma once

#include "plane_transform.hpp"

#include <tenon/simulator.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::navier_stokes {

/// A periodic Gaussian random field as the initial vorticity (the generator of Li et al. 2010.08895). It is
/// the real part of the field with spectrum  n^2 sqrt(2) tau^((2 alpha - 2) / 2) (4 pi^2 |k|^2 +
/// tau^2)^(-alpha / 2) (xi + i eta), xi and eta standard normal, without the mean.
struct RandomVorticity {
  std::size_t grid = 64;
  double alpha = 2.5;
  double tau = 7;

  /// Writes values [x][y]; draws are keyed by (seed, index, mode of this grid).
  void draw(const SimulationTask& task, std::span<double> out) const;
  /// Writes the field of given xi and eta, [kx][ky][2] with both frequencies in the order of a transform.
  void from_normals(std::span<const double> normals, std::span<double> out) const;
};

// The vorticity equation on the unit torus, pseudo-spectral (Li et al. 2010.08895, appendix A.3.3):
//   w_t + u . grad w = nu lap w + f,   lap psi = -w,   u = (psi_y, -psi_x).
// The convective term is explicit Euler and dealiased by the 2/3 rule, diffusion is Crank-Nicolson.

struct Flow {
  std::size_t grid = 64;    ///< points per side, even
  double viscosity = 1e-3;  ///< nu
  double step = 1e-3;       ///< dt
};

/// Fields are [x][y], values at (i / n, j / n).
class VorticitySolver {
 public:
  VorticitySolver(const Flow& flow, std::span<const double> forcing);

  void set(std::span<const double> vorticity);
  /// Keeps only modes with |kx|, |ky| <= (2/3)(n/2).
  void dealias();
  /// Throws Error(kRun) with the step and the cause when the CFL number dt max(|u| + |v|) n exceeds 1 or is
  /// NaN.
  void advance();
  void vorticity(std::span<double> out);
  /// Writes the velocity of the present state, for callers that compute energy.
  void velocity(std::span<double> along_x, std::span<double> along_y);

 private:
  /// Two odd derivatives of one field: their factors of i w^, as one complex number per mode.
  using PairFactors = std::vector<Complex>;

  void derive(const PairFactors& factors, Plane<Complex>& pair);
  void convect();
  [[noreturn]] void fail_step() const;

  Flow flow_;
  PlaneTransform transform_;
  std::int64_t steps_ = 0;
  // Per mode of the half spectrum.
  PairFactors to_velocity_,
      to_gradient_;             ///< u + i v and w_x + i w_y, divided by n^2 as the inverse wants it
  std::vector<double> keep_;    ///< 1 - dt nu L / 2 over 1 + dt nu L / 2
  std::vector<double> push_;    ///< -dt over 1 + dt nu L / 2, 0 where dealiasing removes the convective term
  std::vector<Complex> force_;  ///< dt f^ over 1 + dt nu L / 2
  std::vector<bool> kept_;      ///< by dealiasing
  Plane<Complex> state_, work_;
  Plane<Complex> velocity_, gradient_;
  Plane<double> values_;
};

}  // namespace tenon::navier_stokes
