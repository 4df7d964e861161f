// Optimizer `adagrad` (Duchi, Hazan and Singer, JMLR 2011), as torch.optim.Adagrad has it:
//   g <- g + decay w          s <- s + g^2, before the first update s = initial_accumulator
//   w <- w - lr / (1 + (n - 1) lr_decay) g / (sqrt(s) + eps)          n = updates so far, this one included
// In a row table only the rows that a batch read are updated, as with torch's sparse gradients.
#pragma once

#include <tenon/kernels/adagrad.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

namespace tenon::adagrad {

class Adagrad final : public OptimizerBase, public RowOptimizer, public OptimizerBinding {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-2").at_least(0).doc_text("learning rate before the schedule"),
      option::real("lr_decay", "0")
          .at_least(0)
          .doc_text("growth per update of the divisor of the learning rate"),
      option::real("initial_accumulator", "0").at_least(0).doc_text("sum of squares before the first update"),
      option::real("eps", "1e-10").at_least(0).doc_text("added to the root of the sum of squares"),
      option::real("weight_decay", "0")
          .at_least(0)
          .doc_text("times the weight, added to its gradient; biases and norms are left alone"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "adagrad",
      .summary = "steps divided by the root of all squared gradients",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC | TENON_CAP_HOGWILD};

  explicit Adagrad(const Options& options);
  std::span<const StateSlot> slots() const override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

  std::span<const RowStateSlot> row_slots() const override;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override;
  /// Throws for weight decay of row tables.
  void bind(const OptimizerSetup& setup) override;

 private:
  kernels::AdagradCoefficients<double> coefficients(const UpdateContext& context, bool decay) const;

  double lr_decay_, initial_, eps_, decay_;
};

}  // namespace tenon::adagrad
