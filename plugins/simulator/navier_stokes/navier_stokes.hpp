// Simulator `navier_stokes` (contract simulator/1): the vorticity of a forced flow on the unit torus from a
// random state, at equal time intervals.
#pragma once

#include "vorticity_solver.hpp"

#include <tenon/plugin.hpp>
#include <tenon/simulator.hpp>

#include <span>
#include <vector>

namespace tenon::navier_stokes {

class NavierStokes final : public SimulatorBase {
 public:
  enum class Start { kRandom, kZero, kWave };
  static constexpr auto kInitial =
      option::choice<Start>({{"random", Start::kRandom}, {"zero", Start::kZero}, {"wave", Start::kWave}});
  static constexpr const char* kNumbers[] = {"f32", "f64", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("grid", "64").between(4, 4096).doc_text("points per side, even"),
      option::real("viscosity", "1e-3").between(0, 1e3).doc_text("kinematic viscosity nu"),
      option::real("time", "20").between(1e-9, 1e6).doc_text("end time"),
      option::real("step", "1e-3").between(1e-9, 1e3).doc_text("largest time step"),
      option::integer("snapshots", "20")
          .between(1, 1 << 16)
          .doc_text("states after the initial one, at equal time intervals"),
      option::integer("past", "0")
          .between(0, (1 << 16) - 1)
          .doc_text("number of first snapshots that form a separate input instead of being in the target"),
      option::real("forcing", "0.1")
          .between(-1e6, 1e6)
          .doc_text("amplitude f of the forcing f (sin 2 pi (x + y) + cos 2 pi (x + y))"),
      option::text("initial", "\"random\"")
          .one_of(kInitial)
          .doc_text("initial vorticity: a Gaussian random field, zero, or cos 2 pi (x + y)"),
      option::real("alpha", "2.5").between(1, 10).doc_text("smoothness of the random field"),
      option::real("tau", "7").between(1e-3, 1e3).doc_text("inverse length scale of the random field"),
      option::text("numbers", "\"f32\"").one_of(kNumbers).doc_text("type of the stored arrays"),
  };
  static constexpr ComponentInfo kInfo{.id = "navier_stokes",
                                       .summary = "vorticity on the two-dimensional torus, pseudo-spectral",
                                       .options = kOptions};

  explicit NavierStokes(const Options& options);

  std::span<const SimulatedField> fields() const override { return fields_; }
  std::span<const SimulatedField> shared() const override { return shared_; }
  void share(std::uint64_t seed, std::span<const TensorView> arrays) override;
  void run(const SimulationTask& task, std::span<const TensorView> shared, std::span<const TensorView> fields,
           TaskWatch& watch) override;

 private:
  std::vector<double> initial(const SimulationTask& task) const;

  Flow flow_;
  RandomVorticity random_;
  Start start_;
  std::int64_t snapshots_, past_, steps_;  ///< steps between two snapshots
  double forcing_;
  std::vector<SimulatedField> fields_, shared_;
};

}  // namespace tenon::navier_stokes
