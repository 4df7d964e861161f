// Optimizer `sgd`: stochastic gradient descent with momentum, as torch.optim.SGD has it:
//   g <- g + decay w
//   b <- momentum b + (1 - dampening) g, the first update sets b = g
//   w <- w - lr (nesterov ? g + momentum b : b)
// Row tables are updated without momentum and decay: w <- w - lr g for the rows that a batch read.
#pragma once

#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

namespace tenon::sgd {

class Sgd final : public OptimizerBase, public RowOptimizer, public OptimizerBinding {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-2").at_least(0).doc_text("learning rate before the schedule"),
      option::real("momentum", "0")
          .between(0, 0.9999999)
          .doc_text("share of the last direction that is kept"),
      option::real("dampening", "0").between(0, 1).doc_text("share of the gradient that momentum leaves out"),
      option::boolean("nesterov", "false")
          .doc_text("look ahead along the momentum; needs momentum, no dampening"),
      option::real("weight_decay", "0")
          .at_least(0)
          .doc_text("times the weight, added to its gradient; biases and norms are left alone"),
  };
  static constexpr ComponentInfo kInfo{.id = "sgd",
                                       .summary = "gradient descent with momentum",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_HOGWILD};

  explicit Sgd(const Options& options);
  /// Returns a buffer only with momentum.
  std::span<const StateSlot> slots() const override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

  std::span<const RowStateSlot> row_slots() const override { return {}; }
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override;
  /// Throws for momentum or weight decay of row tables.
  void bind(const OptimizerSetup& setup) override;

 private:
  double momentum_, dampening_, decay_;
  bool nesterov_;
};

}  // namespace tenon::sgd
