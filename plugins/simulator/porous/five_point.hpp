// Symmetric systems of five-point differences on nx x ny unknowns, solved by conjugate gradients with a
// modified incomplete Cholesky factorization (Gustafsson 1978, factor 0.97) as preconditioner.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tenon::porous {

/// (A x)_ij = diagonal_ij x_ij - the neighbours' x times the couplings between them. Index i ny + j.
struct FivePoint {
  FivePoint(std::size_t nx, std::size_t ny);

  std::size_t nx, ny;
  std::vector<double> diagonal;
  std::vector<double> to_next_x;  ///< coupling of (i, j) and (i + 1, j), not negative; 0 in the last row
  std::vector<double> to_next_y;  ///< of (i, j) and (i, j + 1); 0 in the last column

  std::size_t size() const { return nx * ny; }
  void multiply(std::span<const double> x, std::span<double> out) const;
};

class FivePointSolver {
 public:
  FivePointSolver(std::size_t nx, std::size_t ny);

  /// Iterates from the guess in `x` until |b - A x| <= tolerance |b|. `singular`: rows of A sum to 0 and so
  /// does b; x is then the solution of mean 0. Returns the iterations, or -1 when 20 (nx + ny) + 200
  /// iterations do not reach the tolerance.
  int solve(const FivePoint& matrix, std::span<const double> b, double tolerance, bool singular,
            std::span<double> x);

 private:
  void factorize(const FivePoint& matrix);
  void precondition(const FivePoint& matrix, std::span<const double> r, std::span<double> z) const;

  std::vector<double> pivot_;  ///< reciprocal roots of the factorization's diagonal
  std::vector<double> r_, z_, p_, q_;
};

}  // namespace tenon::porous
