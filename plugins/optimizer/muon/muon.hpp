// Optimizer `muon` (Jordan et al. 2024), as torch.optim.Muon, with the products in the parameters' own dtype:
//   b <- b + (1 - momentum) (g - b)          u = nesterov ? g + momentum (b - g) : b
//   X = u / max(|u|_F, eps), then `iterations` times  A = X X^T,  X <- a X + (b A + c A^2) X
//   w <- w (1 - lr decay) - lr s X          s = sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns))
// for hidden matrices. Everything else goes to the optimizer [optimizer.inner]: tensors of other ranks,
// complex ones, row tables, and names that match `inner_match`.
#pragma once

#include "orthogonal.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/state.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::muon {

class Muon final : public OptimizerBase, public OptimizerBinding, public RowOptimizer {
 public:
  static constexpr const char* kAdjustments[] = {"original", "match_rms_adamw", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "0.02").at_least(0).doc_text("learning rate of the matrices before the schedule"),
      option::real("momentum", "0.95")
          .between(0, 0.9999999)
          .doc_text("share of the last direction that is kept"),
      option::boolean("nesterov", "true").doc_text("look ahead along the momentum"),
      option::real("weight_decay", "0.1")
          .at_least(0)
          .doc_text("share of a matrix taken per unit of learning rate"),
      option::integer("iterations", "5").between(1, 100).doc_text("of Newton and Schulz"),
      option::reals("coefficients", "[3.4445, -4.7750, 2.0315]")
          .doc_text("a, b, c of X <- a X + (b A + c A^2) X"),
      option::real("eps", "1e-7").at_least(1e-300).doc_text("least norm that a direction is divided by"),
      option::text("adjust", "\"original\"")
          .one_of(kAdjustments)
          .doc_text("factor of the rate by shape; match_rms_adamw: updates as large as AdamW's"),
      option::texts("inner_match", "[\"*wte*\", \"*wpe*\", \"*embed*\", \"*head*\"]")
          .doc_text("names of matrices that the inner optimizer updates; * stands for any text"),
      option::component("inner", "optimizer/1")
          .mandatory()
          .doc_text("rule for what is no hidden matrix; its lr follows the same schedule"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "muon",
      .summary = "orthogonal updates of hidden matrices, another optimizer for the rest",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Muon(const Options& options);
  /// Returns the slots of the inner rule, or one if it has none; the first holds the momentum of the
  /// matrices.
  std::span<const StateSlot> slots() const override;
  bool elementwise() const override { return false; }
  void bind(const OptimizerSetup& setup) override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;

  /// Row tables use the inner rule, at its own rate.
  std::span<const RowStateSlot> row_slots() const override;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override;

 private:
  UpdateContext inner_context(const UpdateContext& context) const;
  bool hidden(const ParameterInfo& info) const;
  void step_inner(const UpdateContext& context, const ParameterSlice& slice);

  double momentum_, decay_, eps_;
  bool nesterov_, match_rms_;
  std::vector<std::string> inner_match_;
  NewtonSchulz newton_schulz_;
  Optimizer* inner_;
  RowOptimizer* inner_rows_;                        ///< null if the inner rule has no row-sparse form
  std::vector<TensorView> inner_state_;             ///< flat views of a slice's state
  std::unique_ptr<Orthogonalizer> orthogonalizer_;  ///< made by bind()
  std::vector<const OrthogonalPlan*> plans_;        ///< by parameter, null for parameters of the inner rule
};

}  // namespace tenon::muon
