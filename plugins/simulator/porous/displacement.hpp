// Water drives oil out of a square of cells between wells, by IMPES: implicit pressure, explicit saturation.
//   -div(K lambda(S) grad p) = q,   porosity S_t + div(f(S) v) = q_w,   v = -K lambda grad p,   no flow over
//   the rim.
// Two-point fluxes with harmonic means of K and upwind mobilities. Oil has viscosity 1, water `ratio`.
#pragma once

#include "five_point.hpp"
#include "fractional_flow.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::porous {

/// nx x ny square cells of side `width`; index i ny + j.
struct Reservoir {
  std::size_t nx = 0, ny = 0;
  double width = 0;
  double porosity = 0.2;
  FractionalFlow flow;
  std::vector<double> permeability;  ///< of cells
  std::vector<double> rates;         ///< volume per time into a cell; negative: out of it. The sum is 0
};

class Displacement {
 public:
  /// Starts with saturation 0.
  explicit Displacement(Reservoir reservoir);

  /// Solves pressure and flow of the present saturation. Throws Error(kRun) when it does not converge.
  void solve_pressure();
  /// Returns the largest stable step of the present flow: dt max f' x outflow of a cell <= porosity x its
  /// area.
  double stable_step() const;
  /// Advances the saturation. Throws Error(kRun) when it leaves [0, 1] or the step is longer than the stable
  /// one.
  void move(double step);

  std::span<const double> saturation() const { return saturation_; }
  std::span<double> saturation() { return saturation_; }
  std::span<const double> pressure() const { return pressure_; }
  /// Volume per time that leaves a cell, over faces and through wells.
  std::span<const double> outflow() const { return outflow_; }
  /// Water that entered and left through wells since the beginning.
  double injected() const { return injected_; }
  double produced() const { return produced_; }
  double time() const { return time_; }

 private:
  double mobility(double saturation) const;
  void set_transmissibilities();
  void set_flow();

  Reservoir reservoir_;
  std::vector<double> harmonic_x_, harmonic_y_;  ///< of the face towards the next cell, 0 on the boundary
  FivePoint matrix_;
  FivePointSolver solver_;
  std::vector<double> saturation_, pressure_, flow_x_, flow_y_, outflow_, share_, gain_;
  double injected_ = 0, produced_ = 0, time_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace tenon::porous
