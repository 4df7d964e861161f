// Explicit in time: the CFL number is known before the first step, and a task that would violate it ends
// there.
#include "buckley_leverett.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace tenon::porous {
namespace {

constexpr std::int64_t kModes = 8;  // of a random initial state

}  // namespace

double upwind_step(const FractionalFlow& flow, double courant, std::span<double> saturation) {
  double entering = 1;  // f(1), at the inflow
  for (double& cell : saturation) {
    const double leaving = flow.flow(cell);
    cell += courant * (entering - leaving);
    entering = leaving;
  }
  return courant * entering;
}

BuckleyLeverett::BuckleyLeverett(const Options& options)
    : cells_(options.integer("cells")),
      snapshots_(options.integer("snapshots")),
      time_(options.real("time")),
      step_ratio_(options.real("step_ratio")),
      ratio_low_(options.real("ratio_low")),
      ratio_high_(options.real("ratio_high")),
      initial_most_(options.real("initial_most")),
      random_initial_(options.text("initial") == "random") {
  if (ratio_low_ > ratio_high_) {
    fail_config(fmt::format(
        "simulator.buckley_leverett: ratio_low is {} and ratio_high {}; expected the lower one first",
        ratio_low_, ratio_high_));
  }
  const DType dtype = dtype_from_name(options.text("numbers"));
  fields_ = {{"viscosity_ratio", dtype, Shape{1}, false},
             {"initial", dtype, Shape{1, cells_}, false},
             {"saturation", dtype, Shape{snapshots_, cells_}, true}};
}

double BuckleyLeverett::draw_ratio(const SimulationTask& task) const {
  const double share = random_uniform(random_key(task.seed, "buckley_leverett.ratio"),
                                      static_cast<std::uint64_t>(task.index), 0);
  return ratio_low_ * std::pow(ratio_high_ / ratio_low_, share);
}

std::vector<double> BuckleyLeverett::draw_initial(const SimulationTask& task) const {
  std::vector<double> state(cells_, 0.0);
  if (!random_initial_) return state;
  const RandomKey key = random_key(task.seed, "buckley_leverett.initial");
  for (std::int64_t i = 0; i < cells_; ++i) {
    const double x = (static_cast<double>(i) + 0.5) / static_cast<double>(cells_);
    double g = 0;
    for (std::int64_t k = 1; k <= kModes; ++k) {
      const double wave =
          random_normal(key, static_cast<std::uint64_t>(task.index), static_cast<std::uint64_t>(k));
      g += wave * std::cos(std::numbers::pi * static_cast<double>(k) * x) / static_cast<double>(k);
    }
    state[i] = initial_most_ / (1 + std::exp(-2 * g));
  }
  return state;
}

void BuckleyLeverett::run(const SimulationTask& task, std::span<const TensorView>,
                          std::span<const TensorView> fields, TaskWatch& watch) {
  const FractionalFlow flow{draw_ratio(task)};
  const double width = 1.0 / static_cast<double>(cells_);
  const double between = time_ / static_cast<double>(snapshots_);
  // An excess of one part in 1e9 over a whole number of steps is ignored.
  const auto steps =
      static_cast<std::int64_t>(std::max(1.0, std::ceil(between / (step_ratio_ * width) - 1e-9)));
  const double courant = between / static_cast<double>(steps) / width;
  const double cfl = courant * flow.steepest();
  if (cfl > 1 + 1e-9) {
    fail_run(fmt::format(
        "step 0 of {}: the CFL number dt / h x max f' = {:.4g} x {:.4g} = {:.4g} exceeds 1; choose "
        "step_ratio <= {:.4g} for a ratio of viscosities of {:.4g}",
        steps * snapshots_, courant, flow.steepest(), cfl, 1 / flow.steepest(), flow.ratio));
  }
  std::vector<double> state = draw_initial(task);
  write_reals(std::span(&flow.ratio, 1), fields[0]);
  write_reals(state, fields[1].reshaped(Shape{cells_}));
  for (std::int64_t snapshot = 0; snapshot < snapshots_; ++snapshot) {
    for (std::int64_t step = 0; step < steps; ++step) {
      upwind_step(flow, courant, state);
      if (step % 64 == 0) watch.step(snapshot * steps + step, snapshots_ * steps);
    }
    write_reals(state, fields[2].rows(snapshot, snapshot + 1).reshaped(Shape{cells_}));
  }
}

}  // namespace tenon::porous
