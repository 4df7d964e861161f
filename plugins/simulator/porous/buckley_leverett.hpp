// Simulator `buckley_leverett` (contract simulator/1): water displaces oil in a core of length 1 (Buckley and
// Leverett 1942), S_t + f(S)_x = 0 with S = 1 at the inflow, by first-order upwind differences. A task draws
// the ratio of viscosities and, if requested, the initial water saturation.
#pragma once

#include "fractional_flow.hpp"

#include <tenon/plugin.hpp>
#include <tenon/simulator.hpp>

#include <span>
#include <vector>

namespace tenon::porous {

/// Takes one step of first-order upwind differences; f' >= 0, so information comes from the left. `courant` =
/// dt / h, times max f' at most 1. Returns the outflow at the right end, in units of saturation x h.
double upwind_step(const FractionalFlow& flow, double courant, std::span<double> saturation);

class BuckleyLeverett final : public SimulatorBase {
 public:
  static constexpr const char* kInitial[] = {"empty", "random", nullptr};
  static constexpr const char* kNumbers[] = {"f32", "f64", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("cells", "100")
          .between(2, 1 << 20)
          .doc_text("number of cells, of equal width h = 1 / cells"),
      option::real("time", "0.5").between(1e-6, 1e6).doc_text("end time, in injected pore volumes"),
      option::integer("snapshots", "10")
          .between(1, 1 << 16)
          .doc_text("states in the target, at equal time intervals"),
      option::real("step_ratio", "0.4")
          .between(1e-6, 1e6)
          .doc_text("largest dt / h; its product with max f' must not exceed 1"),
      option::real("ratio_low", "0.5").between(1e-3, 1e3).doc_text("smallest viscosity ratio, water / oil"),
      option::real("ratio_high", "2")
          .between(1e-3, 1e3)
          .doc_text("largest viscosity ratio; ratios are drawn log-uniformly"),
      option::text("initial", "\"empty\"")
          .one_of(kInitial)
          .doc_text("initial water saturation: zero, or a smooth random field"),
      option::real("initial_most", "0.3")
          .between(0, 1)
          .doc_text("upper bound of a random initial saturation"),
      option::text("numbers", "\"f32\"").one_of(kNumbers).doc_text("type of the stored arrays"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "buckley_leverett", .summary = "two-phase displacement in one dimension", .options = kOptions};

  explicit BuckleyLeverett(const Options& options);

  std::span<const SimulatedField> fields() const override { return fields_; }
  void run(const SimulationTask& task, std::span<const TensorView> shared, std::span<const TensorView> fields,
           TaskWatch& watch) override;

 private:
  double draw_ratio(const SimulationTask& task) const;
  std::vector<double> draw_initial(const SimulationTask& task) const;

  std::int64_t cells_, snapshots_;
  double time_, step_ratio_, ratio_low_, ratio_high_, initial_most_;
  bool random_initial_;
  std::vector<SimulatedField> fields_;
};

}  // namespace tenon::porous
