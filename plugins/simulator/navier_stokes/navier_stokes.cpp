#include "navier_stokes.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon::navier_stokes {
namespace {

/// Returns g(2 pi (x + y)) on the grid.
template <typename Function>
std::vector<double> diagonal_wave(std::size_t grid, Function&& g) {
  std::vector<double> values(grid * grid);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        g(2 * std::numbers::pi * static_cast<double>(i / grid + i % grid) / static_cast<double>(grid));
  return values;
}

}  // namespace

NavierStokes::NavierStokes(const Options& options)
    : start_(options.choice("initial", kInitial)),
      snapshots_(options.integer("snapshots")),
      past_(options.integer("past")),
      forcing_(options.real("forcing")) {
  const std::int64_t grid = options.integer("grid");
  if (grid % 2 != 0)
    fail_config(fmt::format("simulator.navier_stokes: grid is {}; expected an even number", grid));
  if (past_ >= snapshots_)
    fail_config(
        fmt::format("simulator.navier_stokes: past is {} of {} snapshots; expected fewer, so that some "
                    "are left for the target",
                    past_, snapshots_));
  const double between = options.real("time") / static_cast<double>(snapshots_);
  // An excess of one part in 1e9 over a whole number of steps is ignored.
  steps_ = static_cast<std::int64_t>(std::max(1.0, std::ceil(between / options.real("step") * (1 - 1e-9))));
  flow_ = {static_cast<std::size_t>(grid), options.real("viscosity"), between / static_cast<double>(steps_)};
  random_ = {flow_.grid, options.real("alpha"), options.real("tau")};
  const DType dtype = dtype_from_name(options.text("numbers"));
  fields_ = {{"initial", dtype, Shape{1, grid, grid}, false},
             {"vorticity", dtype, Shape{snapshots_ - past_, grid, grid}, true}};
  if (past_ > 0) fields_.push_back({"past", dtype, Shape{past_, grid, grid}, false});
  shared_ = {{"forcing", DType::kF64, Shape{1, grid, grid}, false}};
}

void NavierStokes::share(std::uint64_t, std::span<const TensorView> arrays) {
  write_reals(
      diagonal_wave(flow_.grid, [&](double angle) { return forcing_ * (std::sin(angle) + std::cos(angle)); }),
      arrays[0]);
}

std::vector<double> NavierStokes::initial(const SimulationTask& task) const {
  if (start_ == Start::kWave) return diagonal_wave(flow_.grid, [](double angle) { return std::cos(angle); });
  std::vector<double> values(flow_.grid * flow_.grid, 0.0);
  if (start_ == Start::kRandom) random_.draw(task, values);
  return values;
}

void NavierStokes::run(const SimulationTask& task, std::span<const TensorView> shared,
                       std::span<const TensorView> fields, TaskWatch& watch) {
  VorticitySolver solver(flow_, shared[0].span<const double>());
  std::vector<double> values = initial(task);
  write_reals(values, fields[0]);
  solver.set(values);
  for (std::int64_t snapshot = 0; snapshot < snapshots_; ++snapshot) {
    for (std::int64_t step = 0; step < steps_; ++step) {
      solver.advance();
      watch.step(snapshot * steps_ + step, snapshots_ * steps_);
    }
    solver.vorticity(values);
    write_reals(values, snapshot < past_ ? fields[2].rows(snapshot, snapshot + 1)
                                         : fields[1].rows(snapshot - past_, snapshot - past_ + 1));
  }
}

}  // namespace tenon::navier_stokes

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.navier_stokes",
                               .version = "0.1.0",
                               .summary = "two-dimensional Navier-Stokes equations on the torus"},
             tenon::navier_stokes::NavierStokes)
