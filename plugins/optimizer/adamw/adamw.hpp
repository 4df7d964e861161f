// Optimizer `adamw`: Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as
// torch.optim.AdamW has it:
//   w <- w (1 - lr decay)
//   m <- beta1 m + (1 - beta1) g          v <- beta2 v + (1 - beta2) g^2
//   w <- w - lr / (1 - beta1^n) m / (sqrt(v / (1 - beta2^n)) + eps)          n = updates so far, this one
//   included
// Lazy on row tables, as torch.optim.SparseAdam: updates weights, moments and decay only of the rows that a
// batch read, with the same n for every row.
#pragma once

#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/ops/update.hpp>

#include <vector>

namespace tenon::adamw {

class AdamW final : public OptimizerBase, public RowOptimizer, public OptimizerBinding {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-3").at_least(0).doc_text("learning rate before the schedule"),
      option::reals("betas", "[0.9, 0.999]")
          .between(0, 0.9999999)
          .doc_text("decay of the mean and of the mean square"),
      option::real("eps", "1e-8").at_least(0).doc_text("added to the root of the mean square"),
      option::real("weight_decay", "0.01")
          .at_least(0)
          .doc_text("share of a weight taken per unit of learning rate; biases and norms are left alone"),
  };
  static constexpr ComponentInfo kInfo{.id = "adamw",
                                       .summary = "Adam with decoupled weight decay",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit AdamW(const Options& options);
  std::span<const StateSlot> slots() const override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

  std::span<const RowStateSlot> row_slots() const override;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override;
  /// Records the parameters that are not decayed.
  void bind(const OptimizerSetup& setup) override;

 private:
  AdamWStep settings(const UpdateContext& context, bool decay) const;

  double beta1_, beta2_, eps_, decay_;
  std::vector<bool> undecayed_;  ///< by parameter
};

}  // namespace tenon::adamw
