#include "random_vorticity.hpp"

#include "plane_transform.hpp"

#include <tenon/random.hpp>

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

}  // namespace tenon::navier_stokes
