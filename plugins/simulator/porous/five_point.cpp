// Sums run in index order, so that results depend only on the input.
#include "five_point.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::porous {
namespace {

constexpr double kModified = 0.97;    // share of the dropped fill that is added to the diagonal
constexpr double kLeastPivot = 0.25;  // of the diagonal; below it the factorization restarts

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void remove_mean(std::span<double> x) {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  for (double& value : x) value -= mean;
}

}  // namespace

FivePoint::FivePoint(std::size_t rows, std::size_t columns)
    : nx(rows), ny(columns), diagonal(size()), to_next_x(size()), to_next_y(size()) {}

void FivePoint::multiply(std::span<const double> x, std::span<double> out) const {
  for (std::size_t at = 0; at < size(); ++at) {
    double sum = diagonal[at] * x[at];
    if (at >= ny) sum -= to_next_x[at - ny] * x[at - ny];
    if (at + ny < size()) sum -= to_next_x[at] * x[at + ny];
    // The coupling across the end of a line is 0.
    if (at >= 1) sum -= to_next_y[at - 1] * x[at - 1];
    if (at + 1 < size()) sum -= to_next_y[at] * x[at + 1];
    out[at] = sum;
  }
}

FivePointSolver::FivePointSolver(std::size_t nx, std::size_t ny)
    : pivot_(nx * ny), r_(nx * ny), z_(nx * ny), p_(nx * ny), q_(nx * ny) {}

void FivePointSolver::factorize(const FivePoint& m) {
  for (std::size_t at = 0; at < m.size(); ++at) {
    double pivot = m.diagonal[at];
    const auto eliminate = [&](std::size_t before, double coupling, double fill) {
      const double scale = pivot_[before] * pivot_[before];
      pivot -= coupling * coupling * scale + kModified * coupling * fill * scale;
    };
    if (at >= m.ny) eliminate(at - m.ny, m.to_next_x[at - m.ny], m.to_next_y[at - m.ny]);
    if (at % m.ny >= 1) eliminate(at - 1, m.to_next_y[at - 1], m.to_next_x[at - 1]);
    if (!(pivot > kLeastPivot * m.diagonal[at])) pivot = m.diagonal[at];
    pivot_[at] = pivot > 0 ? 1 / std::sqrt(pivot) : 1;
  }
}

void FivePointSolver::precondition(const FivePoint& m, std::span<const double> r, std::span<double> z) const {
  for (std::size_t at = 0; at < m.size(); ++at) {
    double sum = r[at];
    if (at >= m.ny) sum += m.to_next_x[at - m.ny] * pivot_[at - m.ny] * z[at - m.ny];
    if (at >= 1) sum += m.to_next_y[at - 1] * pivot_[at - 1] * z[at - 1];
    z[at] = sum * pivot_[at];
  }
  for (std::size_t at = m.size(); at-- > 0;) {
    double sum = z[at];
    if (at + m.ny < m.size()) sum += m.to_next_x[at] * pivot_[at] * z[at + m.ny];
    if (at + 1 < m.size()) sum += m.to_next_y[at] * pivot_[at] * z[at + 1];
    z[at] = sum * pivot_[at];
  }
}

int FivePointSolver::solve(const FivePoint& matrix, std::span<const double> b, double tolerance,
                           bool singular, std::span<double> x) {
  factorize(matrix);
  matrix.multiply(x, r_);
  for (std::size_t i = 0; i < r_.size(); ++i) r_[i] = b[i] - r_[i];
  const double small = tolerance * std::sqrt(dot(b, b));
  const auto most = static_cast<int>(20 * (matrix.nx + matrix.ny) + 200);
  double rho_before = 1;
  for (int iteration = 0; iteration <= most; ++iteration) {
    if (singular) remove_mean(r_);  // the mean is pure rounding error, and later steps could not remove it
    if (std::sqrt(dot(r_, r_)) <= small) {
      if (singular) remove_mean(x);
      return iteration;
    }
    precondition(matrix, r_, z_);
    const double rho = dot(r_, z_), beta = iteration == 0 ? 0 : rho / rho_before;
    rho_before = rho;
    for (std::size_t i = 0; i < p_.size(); ++i) p_[i] = z_[i] + (iteration == 0 ? 0 : beta * p_[i]);
    matrix.multiply(p_, q_);
    const double alpha = rho / dot(p_, q_);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] += alpha * p_[i];
      r_[i] -= alpha * q_[i];
    }
  }
  return -1;
}

}  // namespace tenon::porous
