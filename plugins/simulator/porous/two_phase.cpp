#include "two_phase.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenon::porous {

TwoPhase::TwoPhase(const Options& options)
    : cells_(options.integer("cells")),
      snapshots_(options.integer("snapshots")),
      injectors_(options.integer("injectors")),
      producers_(options.integer("producers")),
      margin_(options.integer("margin")),
      moves_(options.integer("moves")),
      time_(options.real("time")),
      porosity_(options.real("porosity")),
      log_deviation_(options.real("log_deviation")),
      courant_(options.real("courant")),
      flow_{options.real("ratio")},
      field_{.points = cells_,
             .at = CosineField::Points::kCentres,
             .alpha = options.real("alpha"),
             .tau = options.real("tau")} {
  const auto side = static_cast<std::int64_t>(cells_), inside = side - 2 * margin_;
  if (inside < 1 || inside * inside < injectors_ + producers_) {
    fail_config(fmt::format(
        "simulator.two_phase: {} wells do not fit into the {} x {} cells that are {} cells from the rim "
        "of {} x {}; lower margin, injectors or producers",
        injectors_ + producers_, std::max<std::int64_t>(0, inside), std::max<std::int64_t>(0, inside),
        margin_, side, side));
  }
  const DType dtype = dtype_from_name(options.text("numbers"));
  fields_ = {{"log_permeability", dtype, Shape{1, side, side}, false},
             {"wells", dtype, Shape{1, side, side}, false},
             {"saturation", dtype, Shape{snapshots_, side, side}, true}};
}

std::vector<double> TwoPhase::draw_permeability(const SimulationTask& task) const {
  std::vector<double> log =
      field_.draw(random_key(task.seed, "two_phase.permeability"), static_cast<std::uint64_t>(task.index));
  const double scale = log_deviation_ / field_.deviation();
  for (double& value : log) value *= scale;
  return log;
}

/// Draws the wells' shares of the injected volume per time: injectors sum to 1, producers to -1.
std::vector<double> TwoPhase::draw_rates(const SimulationTask& task) const {
  const RandomKey key = random_key(task.seed, "two_phase.wells");
  const auto step = static_cast<std::uint64_t>(task.index);
  const auto inside = static_cast<std::uint64_t>(static_cast<std::int64_t>(cells_) - 2 * margin_);
  const auto injecting =
      1 + static_cast<std::int64_t>(random_below(key, step, 0, static_cast<std::uint64_t>(injectors_)));
  std::vector<double> rates(cells_ * cells_, 0.0);
  std::uint64_t draw = 1;
  for (std::int64_t well = 0; well < injecting + producers_; ++well) {
    double* cell = nullptr;
    do {  // a free cell; the constructor has checked that there are enough
      const std::uint64_t place = random_below(key, step, draw++, inside * inside);
      const std::size_t row = static_cast<std::size_t>(margin_) + place / inside;
      cell = &rates[row * cells_ + static_cast<std::size_t>(margin_) + place % inside];
    } while (*cell != 0);
    *cell = well < injecting ? 1 / static_cast<double>(injecting) : -1 / static_cast<double>(producers_);
  }
  return rates;
}

void TwoPhase::run(const SimulationTask& task, std::span<const TensorView>,
                   std::span<const TensorView> fields, TaskWatch& watch) {
  const std::vector<double> log = draw_permeability(task), shares = draw_rates(task);
  write_reals(log, fields[0]);
  write_reals(shares, fields[1]);
  Reservoir reservoir{.nx = cells_,
                      .ny = cells_,
                      .width = 1 / static_cast<double>(cells_),
                      .porosity = porosity_,
                      .flow = flow_,
                      .permeability = log,
                      .rates = shares};
  for (double& value : reservoir.permeability) value = std::exp(value);
  for (double& value : reservoir.rates) value *= porosity_;  // one pore volume per unit of time
  Displacement displacement(std::move(reservoir));
  for (std::int64_t snapshot = 0; snapshot < snapshots_; ++snapshot) {
    const double end = time_ * static_cast<double>(snapshot + 1) / static_cast<double>(snapshots_);
    while (displacement.time() < end * (1 - 1e-12)) {
      watch.step(snapshot, snapshots_);
      displacement.solve_pressure();
      for (std::int64_t i = 0; i < moves_ && displacement.time() < end * (1 - 1e-12); ++i)
        displacement.move(std::min(courant_ * displacement.stable_step(), end - displacement.time()));
    }
    write_reals(displacement.saturation(), fields[2].rows(snapshot, snapshot + 1));
  }
}

}  // namespace tenon::porous
