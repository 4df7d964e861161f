// Simulator `darcy` (contract simulator/1): -div(a grad u) = 1 on the unit square, u = 0 on the boundary,
// with a coefficient of two values where a Gaussian random field changes its sign (Li et al. 2010.08895,
// appendix A.3.2).
#pragma once

#include "cosine_field.hpp"

#include <tenon/plugin.hpp>
#include <tenon/simulator.hpp>

#include <span>
#include <vector>

namespace tenon::porous {

/// Returns u at the n x n nodes i / (n - 1), from a at the nodes: five-point differences, arithmetic means at
/// the faces. Throws Error(kRun) when the residual does not fall below 1e-12 of the right-hand side.
std::vector<double> solve_darcy(std::size_t n, std::span<const double> a);

class Darcy final : public SimulatorBase {
 public:
  static constexpr const char* kNumbers[] = {"f32", "f64", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("grid", "421").between(3, 8193).doc_text("nodes per side, including the boundary"),
      option::integer("every", "5").between(1, 4096).doc_text("stride of the stored nodes; divides grid - 1"),
      option::real("low", "3")
          .between(1e-6, 1e6)
          .doc_text("coefficient a where the random field is negative"),
      option::real("high", "12").between(1e-6, 1e6).doc_text("coefficient a elsewhere"),
      option::real("alpha", "2").between(1, 10).doc_text("smoothness of the field"),
      option::real("tau", "3").between(1e-3, 1e3).doc_text("inverse length scale of the field"),
      option::text("numbers", "\"f32\"").one_of(kNumbers).doc_text("type of the stored arrays"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "darcy", .summary = "steady flow through a random medium of two materials", .options = kOptions};

  explicit Darcy(const Options& options);

  std::span<const SimulatedField> fields() const override { return fields_; }
  void run(const SimulationTask& task, std::span<const TensorView> shared, std::span<const TensorView> fields,
           TaskWatch& watch) override;

 private:
  CosineField field_;
  std::size_t every_;
  double low_, high_;
  std::vector<SimulatedField> fields_;
};

}  // namespace tenon::porous
