// Optimizer `lion` (contract optimizer/1), Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms",
// algorithm 2:
//   c <- beta1 m + (1 - beta1) g
//   w <- w - lr (sign(c) + decay w)          sign(0) = 0
//   m <- beta2 m + (1 - beta2) g
// Each element moves by lr whatever the size of its gradient. Lazy on row tables: weights, momentum and decay
// of the rows that a batch read. Host memory, f32 and f64.
#pragma once

#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

#include <vector>

namespace lion {

// [options]
class Lion final : public tenon::OptimizerBase,
                   public tenon::RowOptimizer,
                   public tenon::OptimizerBinding,
                   private tenon::IdentitiesOf<Lion> {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::real("lr", "1e-4").at_least(0).doc_text("learning rate before the schedule"),
      tenon::option::reals("betas", "[0.9, 0.99]")
          .length(2)
          .between(0, 0.9999999)
          .doc_text("share of the momentum in the direction; share of the momentum that is kept"),
      tenon::option::real("weight_decay", "0")
          .at_least(0)
          .doc_text("decoupled weight decay per unit of learning rate; not for biases and norms"),
  };
  static constexpr tenon::ComponentInfo kInfo{
      .id = "lion", .summary = "sign of an interpolated momentum", .options = kOptions};
  // [/options]
  // [identities]
  static constexpr tenon::Identity kIdentities[] = {
      {.why = "without memory both divide a gradient by its size",
       .options = "lr = 0.01\nbetas = [0.0, 0.0]",
       .other = "type = 'adamw'\nlr = 0.01\nbetas = [0.0, 0.0]\neps = 1e-30\nweight_decay = 0.0",
       .given = "precision.type = 'fp64'\nsync.type = 'ddp'",
       .within = 1e-9},
  };
  // [/identities]

  explicit Lion(const tenon::Options& options);
  std::span<const tenon::StateSlot> slots() const override;
  void step(const tenon::UpdateContext& context, const tenon::ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

  std::span<const tenon::RowStateSlot> row_slots() const override;
  void step_rows(const tenon::UpdateContext& context, tenon::RowTable& weights,
                 std::span<tenon::RowTable* const> state, const tenon::RowGradient& gradient) override;
  /// Records which parameters are not decayed: step() is told for each slice, step_rows() is not.
  void bind(const tenon::OptimizerSetup& setup) override;

 private:
  double beta1_, beta2_, decay_;
  std::vector<bool> undecayed_;  ///< by parameter
};

}  // namespace lion
