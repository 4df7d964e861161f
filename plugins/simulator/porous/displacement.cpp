#include "displacement.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenon::porous {
namespace {

constexpr double kResidual = 1e-12;
constexpr double kOutside = 1e-6;  // tolerated overshoot beyond [0, 1] due to the pressure's residual

double harmonic(double a, double b) {
  return 2 / (1 / a + 1 / b);
}

}  // namespace

Displacement::Displacement(Reservoir reservoir)
    : reservoir_(std::move(reservoir)),
      matrix_(reservoir_.nx, reservoir_.ny),
      solver_(reservoir_.nx, reservoir_.ny) {
  const std::size_t cells = matrix_.size(), ny = reservoir_.ny;
  for (std::vector<double>* values :
       {&harmonic_x_, &harmonic_y_, &saturation_, &pressure_, &flow_x_, &flow_y_, &outflow_, &share_, &gain_})
    values->assign(cells, 0.0);
  const std::vector<double>& k = reservoir_.permeability;
  for (std::size_t at = 0; at < cells; ++at) {
    if (at + ny < cells) harmonic_x_[at] = harmonic(k[at], k[at + ny]);
    if (at % ny + 1 < ny) harmonic_y_[at] = harmonic(k[at], k[at + 1]);
  }
}

double Displacement::mobility(double s) const {
  return s * s / reservoir_.flow.ratio + (1 - s) * (1 - s);
}

// Upwind by the previous pressure, because the new one is not known yet.
void Displacement::set_transmissibilities() {
  const std::size_t cells = matrix_.size(), ny = reservoir_.ny;
  std::fill(matrix_.diagonal.begin(), matrix_.diagonal.end(), 0.0);
  const auto couple = [&](std::size_t from, std::size_t to, double k, double& coupling) {
    coupling = k * mobility(saturation_[pressure_[from] >= pressure_[to] ? from : to]);
    matrix_.diagonal[from] += coupling;
    matrix_.diagonal[to] += coupling;
  };
  for (std::size_t at = 0; at < cells; ++at) {
    if (at + ny < cells) couple(at, at + ny, harmonic_x_[at], matrix_.to_next_x[at]);
    if (at % ny + 1 < ny) couple(at, at + 1, harmonic_y_[at], matrix_.to_next_y[at]);
  }
}

void Displacement::set_flow() {
  const std::size_t cells = matrix_.size(), ny = reservoir_.ny;
  for (std::size_t at = 0; at < cells; ++at) outflow_[at] = std::max(0.0, -reservoir_.rates[at]);
  const auto flow_between = [&](std::size_t from, std::size_t to, double coupling) {
    const double flow = coupling * (pressure_[from] - pressure_[to]);
    outflow_[from] += std::max(0.0, flow);
    outflow_[to] += std::max(0.0, -flow);
    return flow;
  };
  for (std::size_t at = 0; at < cells; ++at) {
    if (at + ny < cells) flow_x_[at] = flow_between(at, at + ny, matrix_.to_next_x[at]);
    if (at % ny + 1 < ny) flow_y_[at] = flow_between(at, at + 1, matrix_.to_next_y[at]);
  }
}

void Displacement::solve_pressure() {
  set_transmissibilities();
  if (solver_.solve(matrix_, reservoir_.rates, kResidual, true, pressure_) < 0) {
    fail_run(fmt::format(
        "step {} at t = {:.6g}: the pressure did not converge to {}; is the permeability's contrast too "
        "large?",
        steps_, time_, kResidual));
  }
  set_flow();
}

double Displacement::stable_step() const {
  const double most = *std::max_element(outflow_.begin(), outflow_.end());
  return reservoir_.porosity * reservoir_.width * reservoir_.width / (most * reservoir_.flow.steepest());
}

void Displacement::move(double step) {
  const double stable = stable_step();
  if (!(step <= stable * (1 + 1e-9))) {
    fail_run(fmt::format(
        "step {} at t = {:.6g}: the CFL number {:.4g} exceeds 1: dt is {:.4g}, the stable step {:.4g}",
        steps_, time_, step / stable, step, stable));
  }
  const std::size_t cells = matrix_.size(), ny = reservoir_.ny;
  for (std::size_t at = 0; at < cells; ++at) share_[at] = reservoir_.flow.flow(saturation_[at]);
  for (std::size_t at = 0; at < cells; ++at) {
    const double rate = reservoir_.rates[at];
    gain_[at] = rate > 0 ? rate : rate * share_[at];
    (rate > 0 ? injected_ : produced_) += step * std::abs(gain_[at]);
  }
  const auto carry = [&](std::size_t from, std::size_t to, double flow) {
    const double water = flow * share_[flow > 0 ? from : to];
    gain_[from] -= water;
    gain_[to] += water;
  };
  for (std::size_t at = 0; at < cells; ++at) {
    if (at + ny < cells) carry(at, at + ny, flow_x_[at]);
    if (at % ny + 1 < ny) carry(at, at + 1, flow_y_[at]);
  }
  const double per_volume = step / (reservoir_.porosity * reservoir_.width * reservoir_.width);
  for (std::size_t at = 0; at < cells; ++at) {
    saturation_[at] += per_volume * gain_[at];
    if (!(saturation_[at] >= -kOutside && saturation_[at] <= 1 + kOutside)) {
      fail_run(fmt::format("step {} at t = {:.6g}: the saturation of cell ({}, {}) is {}, outside of [0, 1]",
                           steps_, time_, at / ny, at % ny, saturation_[at]));
    }
  }
  time_ += step;
  ++steps_;
}

}  // namespace tenon::porous
