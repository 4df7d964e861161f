// Optimizer `rowwise_adagrad` (Naumov et al., arXiv 1906.00091), for models whose memory is mostly tables.
// For each row of a table that a batch read, with g the sum of its gradients and d the width:
//   m <- m + (g_1^2 + ... + g_d^2) / d          w <- w - lr g / (sqrt(m) + eps)
// Before the first gradient m = initial_accumulator. Dense parameters follow Adagrad, one m per element.
#pragma once

#include <tenon/kernels/adagrad.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

namespace tenon::rowwise_adagrad {

class RowwiseAdagrad final : public OptimizerBase, public RowOptimizer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-2").at_least(0).doc_text("learning rate before the schedule"),
      option::real("eps", "1e-10").at_least(0).doc_text("added to the root of the sum of squares"),
      option::real("initial_accumulator", "0")
          .at_least(0)
          .doc_text("sum of squares of a row, or a weight, before its first gradient"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "rowwise_adagrad",
      .summary = "Adagrad with one accumulator per row of a table",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC | TENON_CAP_HOGWILD};

  explicit RowwiseAdagrad(const Options& options);
  std::span<const StateSlot> slots() const override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

  std::span<const RowStateSlot> row_slots() const override;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override;

 private:
  kernels::AdagradCoefficients<double> coefficients(const UpdateContext& context) const;

  double eps_, initial_;
};

}  // namespace tenon::rowwise_adagrad
