// Optimizer `adamw`: Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), as
// torch.optim.AdamW has it:
//   w <- w (1 - lr decay)
//   m <- beta1 m + (1 - beta1) g          v <- beta2 v + (1 - beta2) g^2
//   w <- w - lr / (1 - beta1^n) m / (sqrt(v / (1 - beta2^n)) + eps)          n = updates so far, this one
//   included
// Lazy on row tables, as torch.optim.SparseAdam: updates weights, moments and decay only of the rows that a
// batch read, with the same n for every row.
// The rule is AdamWRule of <tenon/sdk/update_rules.hpp>, which the device evaluates.
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <vector>

namespace tenon::adamw {

class AdamW final : public OptimizerBase,
                    public RowOptimizer,
                    public OptimizerBinding,
                    private IdentitiesOf<AdamW> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-3").at_least(0).doc_text("learning rate before the schedule"),
      option::reals("betas", "[0.9, 0.999]")
          .length(2)
          .between(0, 0.9999999)
          .doc_text("decay rates of the first and second moments"),
      option::real("eps", "1e-8").at_least(0).doc_text("added to the root of the second moment"),
      option::real("weight_decay", "0.01")
          .at_least(0)
          .doc_text("decoupled weight decay per unit of learning rate; not for biases and norms"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "adamw", .summary = "Adam with decoupled weight decay", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why =
           "without memory, and with an eps that no gradient reaches, a step is lr / eps times the gradient",
       .options = "lr = 1e10\nbetas = [0.0, 0.0]\neps = 1e12\nweight_decay = 0.0",
       .other = "type = 'sgd'\nlr = 0.01",
       .given = "precision.type = 'fp64'\nschedule.type = 'constant'\nsync.type = 'ddp'",
       .within = 1e-9},
  };

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
  AdamWRule rule(const UpdateContext& context, bool decay) const;

  double beta1_, beta2_, eps_, decay_;
  std::vector<bool> undecayed_;  ///< by parameter
};

namespace {

constexpr StateSlot kSlots[] = {{"exp_avg"}, {"exp_avg_sq"}};
constexpr RowStateSlot kRowSlots[] = {{"exp_avg", 0}, {"exp_avg_sq", 0}};

}  // namespace

AdamW::AdamW(const Options& options)
    : OptimizerBase(options), eps_(options.real("eps")), decay_(options.real("weight_decay")) {
  const std::span<const double> betas = options.reals("betas");
  beta1_ = betas[0];
  beta2_ = betas[1];
}

std::span<const StateSlot> AdamW::slots() const {
  return kSlots;
}

std::span<const RowStateSlot> AdamW::row_slots() const {
  return kRowSlots;
}

void* AdamW::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  if (interface_id == RowOptimizer::kId) return static_cast<RowOptimizer*>(this);
  return interface_id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
}

void AdamW::bind(const OptimizerSetup& setup) {
  undecayed_.assign(setup.parameters.size(), false);
  for (const ParameterInfo& info : setup.parameters) undecayed_[info.index] = !info.spec.decay;
}

AdamWRule AdamW::rule(const UpdateContext& context, bool decay) const {
  return AdamWRule({.lr = context.lr,
                    .beta1 = beta1_,
                    .beta2 = beta2_,
                    .eps = eps_,
                    .decay = decay ? decay_ : 0.0,
                    .count = context.count,
                    .gradient_scale = context.gradient_scale});
}

void AdamW::step(const UpdateContext& context, const ParameterSlice& slice) {
  update_slice(*context.device, slice, rule(context, slice.decay));
}

void AdamW::step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                      const RowGradient& gradient) {
  const std::size_t index = gradient.parameter;
  const bool decay = index >= undecayed_.size() || !undecayed_[index];
  update_rows(*context.device, weights, state, gradient, rule(context, decay));
}

}  // namespace tenon::adamw

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.adamw", .version = "0.1.0", .summary = "AdamW optimizer"},
             tenon::adamw::AdamW)
