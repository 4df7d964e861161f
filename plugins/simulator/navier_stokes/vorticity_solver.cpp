// Four inverse transforms and a forward one per step; the rest is a few products per mode.
#include "vorticity_solver.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon::navier_stokes {

VorticitySolver::VorticitySolver(const Flow& flow, std::span<const double> forcing)
    : flow_(flow),
      transform_(flow.grid),
      state_(transform_.modes()),
      work_(transform_.modes()),
      u_(transform_.points()),
      v_(transform_.points()),
      wx_(transform_.points()),
      wy_(transform_.points()) {
  const std::size_t n = flow.grid, half = n / 2;
  std::copy(forcing.begin(), forcing.end(), u_.values().begin());
  transform_.forward(u_, work_);
  const double scale = 1 / static_cast<double>(n * n);
  for (std::size_t mode = 0; mode < transform_.modes(); ++mode) {
    const std::size_t row = mode / (half + 1), column = mode % (half + 1);
    const double kx =
        row <= half ? static_cast<double>(row) : static_cast<double>(row) - static_cast<double>(n);
    const auto ky = static_cast<double>(column);
    const double eigenvalue = 4 * std::numbers::pi * std::numbers::pi * (kx * kx + ky * ky);  // of -lap
    // A derivative has no part at the highest frequency: it would be imaginary there.
    const double dx = row == half ? 0 : 2 * std::numbers::pi * kx * scale;
    const double dy = column == half ? 0 : 2 * std::numbers::pi * ky * scale;
    to_wx_.push_back(dx);
    to_wy_.push_back(dy);
    to_u_.push_back(eigenvalue > 0 ? dy / eigenvalue : 0);
    to_v_.push_back(eigenvalue > 0 ? -dx / eigenvalue : 0);
    const double q = flow.step * flow.viscosity * eigenvalue / 2, implicit = 1 / (1 + q);
    const double cut = 2.0 / 3 * static_cast<double>(half);
    kept_.push_back(std::abs(kx) <= cut && ky <= cut);
    keep_.push_back((1 - q) * implicit);
    push_.push_back(kept_.back() ? -flow.step * implicit : 0);
    force_.push_back(flow.step * implicit * work_.values()[mode]);
  }
}

void VorticitySolver::set(std::span<const double> vorticity) {
  std::copy(vorticity.begin(), vorticity.end(), u_.values().begin());
  transform_.forward(u_, state_);
  steps_ = 0;
}

void VorticitySolver::dealias() {
  for (std::size_t mode = 0; mode < kept_.size(); ++mode) {
    if (!kept_[mode]) state_.values()[mode] = 0;
  }
}

void VorticitySolver::differentiate(const std::vector<double>& factor, Plane<double>& out) {
  // Pairs of reals: the product of two std::complex checks for infinities.
  const auto* from = reinterpret_cast<const double*>(state_.data());
  auto* to = reinterpret_cast<double*>(work_.data());
  for (std::size_t mode = 0; mode < factor.size(); ++mode) {
    to[2 * mode] = -factor[mode] * from[2 * mode + 1];
    to[2 * mode + 1] = factor[mode] * from[2 * mode];
  }
  transform_.inverse(work_, out);
}

void VorticitySolver::convect() {
  differentiate(to_u_, u_);
  differentiate(to_v_, v_);
  differentiate(to_wx_, wx_);
  differentiate(to_wy_, wy_);
  const double fastest = 1 / (flow_.step * static_cast<double>(flow_.grid));
  const double *u = u_.data(), *v = v_.data(), *wy = wy_.data();
  double* wx = wx_.data();
  std::int64_t within = 0;
  for (std::size_t i = 0; i < transform_.points(); ++i) {
    within += std::abs(u[i]) + std::abs(v[i]) <= fastest ? 1 : 0;  // not for NaN
    wx[i] = u[i] * wx[i] + v[i] * wy[i];
  }
  if (within != static_cast<std::int64_t>(transform_.points())) fail_step();
  transform_.forward(wx_, work_);
}

void VorticitySolver::fail_step() const {
  double fastest = 0;
  for (std::size_t i = 0; i < transform_.points(); ++i) {
    const double speed = std::abs(u_.data()[i]) + std::abs(v_.data()[i]);
    if (!std::isfinite(speed))
      fail_run(fmt::format("step {}: the velocity is {} at point ({}, {})", steps_, speed, i / flow_.grid,
                           i % flow_.grid));
    fastest = std::max(fastest, speed);
  }
  fail_run(fmt::format(
      "step {}: the CFL number dt max(|u| + |v|) n = {:.4g} x {:.4g} x {} = {:.4g} exceeds 1; choose "
      "a smaller step",
      steps_, flow_.step, fastest, flow_.grid, flow_.step * fastest * static_cast<double>(flow_.grid)));
}

void VorticitySolver::advance() {
  convect();
  auto* state = reinterpret_cast<double*>(state_.data());
  const auto* convective = reinterpret_cast<const double*>(work_.data());
  const auto* force = reinterpret_cast<const double*>(force_.data());
  for (std::size_t mode = 0; mode < keep_.size(); ++mode) {
    for (std::size_t part = 2 * mode; part < 2 * mode + 2; ++part)
      state[part] = keep_[mode] * state[part] + push_[mode] * convective[part] + force[part];
  }
  ++steps_;
}

void VorticitySolver::vorticity(std::span<double> out) {
  const double scale = 1 / static_cast<double>(transform_.points());
  std::copy(state_.values().begin(), state_.values().end(), work_.values().begin());
  transform_.inverse(work_, u_);
  std::transform(u_.values().begin(), u_.values().end(), out.begin(),
                 [&](double value) { return scale * value; });
}

void VorticitySolver::velocity(std::span<double> along_x, std::span<double> along_y) {
  differentiate(to_u_, u_);
  differentiate(to_v_, v_);
  std::copy(u_.values().begin(), u_.values().end(), along_x.begin());
  std::copy(v_.values().begin(), v_.values().end(), along_y.begin());
}

}  // namespace tenon::navier_stokes
