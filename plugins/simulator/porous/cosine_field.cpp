// FFTW's cosine transforms evaluate the sum. Plans are estimated: measured plans depend on timing, which
// would change the bits.
#include "cosine_field.hpp"

#include <fftw3.h>

#include <cmath>
#include <memory>
#include <new>
#include <numbers>

namespace tenon::porous {
namespace {

/// FFTW's planner is one for the whole process and guards nothing by itself. Its own lock holds for every
/// plugin that plans.
void enable_planner_lock() {
  static const bool once = (::fftw_make_planner_thread_safe(), true);
  static_cast<void>(once);
}

void transform(double* values, std::size_t n, fftw_r2r_kind kind) {
  const int side = static_cast<int>(n);
  enable_planner_lock();
  fftw_plan plan = ::fftw_plan_r2r_2d(side, side, values, values, kind, kind, FFTW_ESTIMATE);
  ::fftw_execute(plan);
  ::fftw_destroy_plan(plan);
}

}  // namespace

double CosineField::amplitude(std::size_t k1, std::size_t k2) const {
  if (k1 == 0 && k2 == 0) return 0;
  const auto a = static_cast<double>(k1), b = static_cast<double>(k2);
  const double weight = (k1 == 0 ? 1 : std::numbers::sqrt2) * (k2 == 0 ? 1 : std::numbers::sqrt2);
  return weight * std::pow(tau, alpha - 1) *
         std::pow(std::numbers::pi * std::numbers::pi * (a * a + b * b) + tau * tau, -alpha / 2);
}

std::vector<double> CosineField::draw(RandomKey key, std::uint64_t step) const {
  std::vector<double> normals(points * points);
  for (std::size_t i = 0; i < normals.size(); ++i) normals[i] = random_normal(key, step, i);
  return from_normals(normals);
}

std::vector<double> CosineField::from_normals(std::span<const double> normals) const {
  struct Free {
    void operator()(double* memory) const { ::fftw_free(memory); }
  };
  // Aligned, as FFTW likes it and always the same.
  const std::unique_ptr<double[], Free> memory(
      static_cast<double*>(::fftw_malloc(points * points * sizeof(double))));
  if (memory == nullptr) throw std::bad_alloc();
  const auto plan_factor = [&](std::size_t k) {
    const bool counted_once = k == 0 || (at == Points::kNodes && k == points - 1);
    return counted_once ? 1.0 : 0.5;  // the transforms count the others twice
  };
  for (std::size_t k1 = 0; k1 < points; ++k1) {
    for (std::size_t k2 = 0; k2 < points; ++k2) {
      memory[k1 * points + k2] =
          amplitude(k1, k2) * normals[k1 * points + k2] * plan_factor(k1) * plan_factor(k2);
    }
  }
  transform(memory.get(), points, at == Points::kNodes ? FFTW_REDFT00 : FFTW_REDFT01);
  return {memory.get(), memory.get() + points * points};
}

double CosineField::deviation() const {
  double variance = 0;
  for (std::size_t k1 = 0; k1 < points; ++k1) {
    for (std::size_t k2 = 0; k2 < points; ++k2) {
      // The mean square of a cosine is 1/2, except for the constant one.
      const double mean_square = (k1 == 0 ? 1 : 0.5) * (k2 == 0 ? 1 : 0.5);
      variance += amplitude(k1, k2) * amplitude(k1, k2) * mean_square;
    }
  }
  return std::sqrt(variance);
}

}  // namespace tenon::porous
