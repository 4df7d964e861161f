// Simulator `two_phase` (contract simulator/1): water injected through wells into a random oil-saturated
// medium, in two dimensions. A task draws a log-normal permeability, the positions of the wells, and the
// number of injectors.
#pragma once

#include "cosine_field.hpp"
#include "displacement.hpp"

#include <tenon/plugin.hpp>
#include <tenon/simulator.hpp>

#include <span>
#include <vector>

namespace tenon::porous {

class TwoPhase final : public SimulatorBase {
 public:
  static constexpr const char* kNumbers[] = {"f32", "f64", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("cells", "64").between(4, 2048).doc_text("cells per side of the unit square"),
      option::real("time", "0.5").between(1e-6, 1e3).doc_text("end time, in injected pore volumes"),
      option::integer("snapshots", "10")
          .between(1, 1 << 12)
          .doc_text("states in the target, at equal time intervals"),
      option::real("porosity", "0.2").between(0.01, 1).doc_text("fraction of the volume that is pore space"),
      option::real("ratio", "0.5").between(1e-3, 1e3).doc_text("viscosity of water over that of oil"),
      option::integer("injectors", "4")
          .between(1, 64)
          .doc_text("largest number of injection wells; a task draws 1 to this many, with equal rates"),
      option::integer("producers", "1").between(1, 64).doc_text("production wells, with equal rates"),
      option::integer("margin", "4")
          .between(0, 1024)
          .doc_text("smallest number of cells between a well and the boundary"),
      option::real("log_deviation", "1")
          .between(0, 5)
          .doc_text("standard deviation of the permeability's logarithm"),
      option::real("alpha", "2").between(1, 10).doc_text("smoothness of that logarithm"),
      option::real("tau", "10").between(1e-3, 1e3).doc_text("inverse length scale of that logarithm"),
      option::real("courant", "0.9")
          .between(0.01, 1)
          .doc_text("time step as a fraction of the largest stable one"),
      option::integer("moves", "4").between(1, 1000).doc_text("saturation steps per pressure solve"),
      option::text("numbers", "\"f32\"").one_of(kNumbers).doc_text("type of the stored arrays"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "two_phase",
      .summary = "two-phase displacement between wells, IMPES in two dimensions",
      .options = kOptions};

  explicit TwoPhase(const Options& options);

  std::span<const SimulatedField> fields() const override { return fields_; }
  void run(const SimulationTask& task, std::span<const TensorView> shared, std::span<const TensorView> fields,
           TaskWatch& watch) override;

 private:
  std::vector<double> draw_permeability(const SimulationTask& task) const;
  std::vector<double> draw_rates(const SimulationTask& task) const;

  std::size_t cells_;
  std::int64_t snapshots_, injectors_, producers_, margin_, moves_;
  double time_, porosity_, log_deviation_, courant_;
  FractionalFlow flow_;
  CosineField field_;
  std::vector<SimulatedField> fields_;
};

}  // namespace tenon::porous
