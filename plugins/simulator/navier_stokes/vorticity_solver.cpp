// Random initial states, then the steps of the solver.
#include "vorticity_solver.hpp"

#include "plane_transform.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace tenon::navier_stokes {

void RandomVorticity::draw(const SimulationTask& task, std::span<double> out) const {
  const RandomKey key = random_key(task.seed, "navier_stokes.initial");
  std::vector<double> normals(2 * grid * grid);
  for (std::size_t element = 0; element < normals.size(); ++element)
    normals[element] = random_normal(key, static_cast<std::uint64_t>(task.index), element);
  from_normals(normals, out);
}

void RandomVorticity::from_normals(std::span<const double> normals, std::span<double> out) const {
  const PlaneTransform transform(grid);
  Plane<Complex> spectrum(transform.modes());
  Plane<double> values(transform.points());
  const auto mode_at = [&](std::size_t row, std::size_t column) {
    const std::size_t element = 2 * (row * grid + column);
    return Complex(normals[element], normals[element + 1]);
  };
  const std::size_t half = grid / 2;
  for (std::size_t row = 0; row < grid; ++row) {
    for (std::size_t column = 0; column <= half; ++column) {
      if (row == 0 && column == 0) continue;
      const double kx = static_cast<double>(std::min(row, grid - row)), ky = static_cast<double>(column);
      const double eigenvalue = 4 * std::numbers::pi * std::numbers::pi * (kx * kx + ky * ky) + tau * tau;
      const double amplitude =
          std::numbers::sqrt2 * std::pow(tau, alpha - 1) * std::pow(eigenvalue, -alpha / 2);
      // The spectrum of the real part of a field is the Hermitian part of the field's spectrum.
      const Complex opposite = mode_at((grid - row) % grid, (grid - column) % grid);
      spectrum.values()[row * (half + 1) + column] =
          amplitude * 0.5 * (mode_at(row, column) + std::conj(opposite));
    }
  }
  transform.inverse(spectrum, values);  // n^2 times the inverse, the n^2 of the formula
  std::copy(values.values().begin(), values.values().end(), out.begin());
}

// Each step transforms the velocity and the gradient of the vorticity as two complex fields, and their
// product back; the rest is a few products per mode.

VorticitySolver::VorticitySolver(const Flow& flow, std::span<const double> forcing)
    : flow_(flow),
      transform_(flow.grid),
      state_(transform_.modes()),
      work_(transform_.modes()),
      velocity_(transform_.points()),
      gradient_(transform_.points()),
      values_(transform_.points()) {
  const std::size_t n = flow.grid, half = n / 2;
  std::copy(forcing.begin(), forcing.end(), values_.values().begin());
  transform_.forward(values_, work_);
  const double scale = 1 / static_cast<double>(n * n);
  for (std::size_t mode = 0; mode < transform_.modes(); ++mode) {
    const std::size_t row = mode / (half + 1), column = mode % (half + 1);
    const double kx =
        row <= half ? static_cast<double>(row) : static_cast<double>(row) - static_cast<double>(n);
    const auto ky = static_cast<double>(column);
    const double eigenvalue = 4 * std::numbers::pi * std::numbers::pi * (kx * kx + ky * ky);  // of -lap
    // A derivative is 0 at the highest frequency, where it would be imaginary.
    const double dx = row == half ? 0 : 2 * std::numbers::pi * kx * scale;
    const double dy = column == half ? 0 : 2 * std::numbers::pi * ky * scale;
    // i a + i (i b): the first derivative becomes the real part, the second the imaginary part.
    to_gradient_.emplace_back(-dy, dx);
    const double inverse =
        eigenvalue > 0 ? 1 / eigenvalue : 0;  // u = psi_y, v = -psi_x, psi = w / eigenvalue
    to_velocity_.emplace_back(dx * inverse, dy * inverse);
    const double q = flow.step * flow.viscosity * eigenvalue / 2, implicit = 1 / (1 + q);
    const double cut = 2.0 / 3 * static_cast<double>(half);
    kept_.push_back(std::abs(kx) <= cut && ky <= cut);
    keep_.push_back((1 - q) * implicit);
    push_.push_back(kept_.back() ? -flow.step * implicit : 0);
    force_.push_back(flow.step * implicit * work_.values()[mode]);
  }
}

void VorticitySolver::set(std::span<const double> vorticity) {
  std::copy(vorticity.begin(), vorticity.end(), values_.values().begin());
  transform_.forward(values_, state_);
  steps_ = 0;
}

void VorticitySolver::dealias() {
  for (std::size_t mode = 0; mode < kept_.size(); ++mode) {
    if (!kept_[mode]) state_.values()[mode] = 0;
  }
}

void VorticitySolver::derive(const PairFactors& factors, Plane<Complex>& pair) {
  const std::size_t n = flow_.grid, half = n / 2;
  // Uses pairs of reals, because the product of two std::complex checks for infinities.
  const auto* factor = reinterpret_cast<const double*>(factors.data());
  const auto* state = reinterpret_cast<const double*>(state_.data());
  auto* out = reinterpret_cast<double*>(pair.data());
  for (std::size_t row = 0; row < n; ++row) {
    const double *a = factor + 2 * row * (half + 1), *w = state + 2 * row * (half + 1);
    double* here = out + 2 * row * n;
    for (std::size_t k = 0; k <= half; ++k) {
      here[2 * k] = a[2 * k] * w[2 * k] - a[2 * k + 1] * w[2 * k + 1];
      here[2 * k + 1] = a[2 * k] * w[2 * k + 1] + a[2 * k + 1] * w[2 * k];
    }
    // At -k the state is the conjugate and an odd derivative's factor the opposite.
    double* there = out + 2 * ((n - row) % n) * n;
    for (std::size_t k = 1; k < half; ++k) {
      there[2 * (n - k)] = -(a[2 * k] * w[2 * k] + a[2 * k + 1] * w[2 * k + 1]);
      there[2 * (n - k) + 1] = a[2 * k] * w[2 * k + 1] - a[2 * k + 1] * w[2 * k];
    }
  }
  transform_.inverse_pair(pair);
}

void VorticitySolver::convect() {
  derive(to_velocity_, velocity_);
  derive(to_gradient_, gradient_);
  const double fastest = 1 / (flow_.step * static_cast<double>(flow_.grid));
  const auto *u = reinterpret_cast<const double*>(velocity_.data()),
             *w = reinterpret_cast<const double*>(gradient_.data());
  double* product = values_.data();
  std::int64_t within = 0;
  for (std::size_t i = 0; i < transform_.points(); ++i) {
    within += std::abs(u[2 * i]) + std::abs(u[2 * i + 1]) <= fastest ? 1 : 0;  // false for NaN
    product[i] = u[2 * i] * w[2 * i] + u[2 * i + 1] * w[2 * i + 1];
  }
  if (within != static_cast<std::int64_t>(transform_.points())) fail_step();
  transform_.forward(values_, work_);
}

void VorticitySolver::fail_step() const {
  double fastest = 0;
  for (std::size_t i = 0; i < transform_.points(); ++i) {
    const Complex velocity = velocity_.data()[i];
    const double speed = std::abs(velocity.real()) + std::abs(velocity.imag());
    if (!std::isfinite(speed)) {
      fail_run(fmt::format("step {}: the velocity is {} at point ({}, {})", steps_, speed, i / flow_.grid,
                           i % flow_.grid));
    }
    fastest = std::max(fastest, speed);
  }
  fail_run(fmt::format(
      "step {}: the CFL number dt max(|u| + |v|) n = {:.4g} x {:.4g} x {} = {:.4g} exceeds 1; choose a "
      "smaller step",
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
  transform_.inverse(work_, values_);
  std::transform(values_.values().begin(), values_.values().end(), out.begin(),
                 [&](double value) { return scale * value; });
}

void VorticitySolver::velocity(std::span<double> along_x, std::span<double> along_y) {
  derive(to_velocity_, velocity_);
  for (std::size_t i = 0; i < transform_.points(); ++i) {
    along_x[i] = velocity_.data()[i].real();
    along_y[i] = velocity_.data()[i].imag();
  }
}

}  // namespace tenon::navier_stokes
