#include "darcy.hpp"

#include "five_point.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::porous {

std::vector<double> solve_darcy(std::size_t n, std::span<const double> a) {
  const std::size_t inner = n - 2;
  FivePoint matrix(inner, inner);
  const auto face = [&](std::size_t node, std::size_t other) { return 0.5 * (a[node] + a[other]); };
  for (std::size_t i = 0; i < inner; ++i) {
    for (std::size_t j = 0; j < inner; ++j) {
      const std::size_t node = (i + 1) * n + j + 1, at = i * inner + j;
      matrix.diagonal[at] =
          face(node, node - n) + face(node, node + n) + face(node, node - 1) + face(node, node + 1);
      if (i + 1 < inner) matrix.to_next_x[at] = face(node, node + n);
      if (j + 1 < inner) matrix.to_next_y[at] = face(node, node + 1);
    }
  }
  const double width = 1 / static_cast<double>(n - 1);
  const std::vector<double> source(matrix.size(), width * width);
  std::vector<double> inside(matrix.size(), 0.0);
  if (FivePointSolver(inner, inner).solve(matrix, source, 1e-12, false, inside) < 0) {
    fail_run(fmt::format(
        "the pressure of {} x {} nodes did not converge to 1e-12; is the contrast of `high` and `low` "
        "too large?",
        n, n));
  }
  std::vector<double> u(n * n, 0.0);
  for (std::size_t i = 0; i < inner; ++i)
    std::copy_n(inside.begin() + static_cast<std::ptrdiff_t>(i * inner), inner,
                u.begin() + static_cast<std::ptrdiff_t>((i + 1) * n + 1));
  return u;
}

Darcy::Darcy(const Options& options)
    : field_{.points = static_cast<std::size_t>(options.integer("grid")),
             .at = CosineField::Points::kNodes,
             .alpha = options.real("alpha"),
             .tau = options.real("tau")},
      every_(options.integer("every")),
      low_(options.real("low")),
      high_(options.real("high")) {
  if ((field_.points - 1) % every_ != 0) {
    fail_config(fmt::format("simulator.darcy: every is {} and grid {}; expected a divisor of grid - 1 = {}",
                            every_, field_.points, field_.points - 1));
  }
  const auto side = static_cast<std::int64_t>((field_.points - 1) / every_ + 1);
  const DType dtype = dtype_from_name(options.text("numbers"));
  fields_ = {{"a", dtype, Shape{1, side, side}, false}, {"u", dtype, Shape{1, side, side}, true}};
}

void Darcy::run(const SimulationTask& task, std::span<const TensorView>, std::span<const TensorView> fields,
                TaskWatch& watch) {
  const std::size_t n = field_.points;
  std::vector<double> a =
      field_.draw(random_key(task.seed, "darcy.coefficient"), static_cast<std::uint64_t>(task.index));
  for (double& value : a) value = value >= 0 ? high_ : low_;
  watch.step(0, 1);
  const std::vector<double> u = solve_darcy(n, a);
  const auto store = [&](const std::vector<double>& values, const TensorView& view) {
    std::vector<double> stored;
    for (std::size_t i = 0; i < n; i += every_) {
      for (std::size_t j = 0; j < n; j += every_) stored.push_back(values[i * n + j]);
    }
    write_reals(stored, view);
  };
  store(a, fields[0]);
  store(u, fields[1]);
}

}  // namespace tenon::porous
