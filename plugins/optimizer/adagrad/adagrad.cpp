// Optimizer `adagrad` (Duchi, Hazan and Singer, JMLR 2011), as torch.optim.Adagrad has it:
//   g <- g + decay w          s <- s + g^2, before the first update s = initial_accumulator
//   w <- w - lr / (1 + (n - 1) lr_decay) g / (sqrt(s) + eps)          n = updates so far, this one included
// In a row table only the rows that a batch read are updated, as with torch's sparse gradients.
// The rule is AdagradRule of <tenon/sdk/update_rules.hpp>, which the device evaluates.
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <string>

namespace tenon::adagrad {

class Adagrad final : public OptimizerBase,
                      public RowOptimizer,
                      public OptimizerBinding,
                      private IdentitiesOf<Adagrad> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-2").at_least(0).doc_text("learning rate before the schedule"),
      option::real("lr_decay", "0")
          .at_least(0)
          .doc_text("update n divides the learning rate by 1 + (n - 1) lr_decay"),
      option::real("initial_accumulator", "0").at_least(0).doc_text("sum of squares before the first update"),
      option::real("eps", "1e-10").at_least(0).doc_text("added to the root of the sum of squares"),
      option::real("weight_decay", "0")
          .at_least(0)
          .doc_text("L2 penalty: this times the weight is added to its gradient; not for biases and norms"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "adagrad",
      .summary = "gradient steps divided by the root of the sum of squared gradients",
      .options = kOptions,
      .capabilities = TENON_CAP_HOGWILD};
  static constexpr Identity kIdentities[] = {
      {.why = "beside an accumulator that no gradient moves, a step is lr / sqrt(accumulator) times the "
              "gradient",
       .options = "lr = 1e6\ninitial_accumulator = 1e16",
       .other = "type = 'sgd'\nlr = 0.01",
       .given = "precision.type = 'fp64'\nschedule.type = 'constant'\nsync.type = 'ddp'",
       .within = 1e-9},
  };

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
  AdagradRule rule(const UpdateContext& context, bool decay) const;

  double lr_decay_, initial_, eps_, decay_;
};

namespace {

constexpr StateSlot kSlots[] = {{"sum"}};
constexpr RowStateSlot kRowSlots[] = {{"sum", 0}};

}  // namespace

Adagrad::Adagrad(const Options& options)
    : OptimizerBase(options),
      lr_decay_(options.real("lr_decay")),
      initial_(options.real("initial_accumulator")),
      eps_(options.real("eps")),
      decay_(options.real("weight_decay")) {
  if (initial_ == 0 && eps_ == 0) {
    fail_config(
        "optimizer adagrad: eps = 0 needs initial_accumulator above 0; a weight whose gradient is zero would "
        "become 0 / 0");
  }
}

std::span<const StateSlot> Adagrad::slots() const {
  return kSlots;
}

std::span<const RowStateSlot> Adagrad::row_slots() const {
  return kRowSlots;
}

void* Adagrad::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  if (interface_id == RowOptimizer::kId) return static_cast<RowOptimizer*>(this);
  return interface_id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
}

void Adagrad::bind(const OptimizerSetup& setup) {
  refuse_decayed_tables("adagrad", decay_, setup.parameters);
}

AdagradRule Adagrad::rule(const UpdateContext& context, bool decay) const {
  return {.grad_scale = context.gradient_scale,
          .lr = context.lr / (1 + static_cast<double>(context.count - 1) * lr_decay_),
          .decay = decay ? decay_ : 0.0,
          .eps = eps_,
          .initial = initial_};
}

void Adagrad::step(const UpdateContext& context, const ParameterSlice& slice) {
  const DType dtype = slice.weights.dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64)
    fail_run("optimizer adagrad updates f32 and f64, found " + std::string(dtype_name(dtype)));
  update_slice(*context.device, slice, rule(context, slice.decay));
}

void Adagrad::step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                        const RowGradient& gradient) {
  update_rows(*context.device, weights, state, gradient, rule(context, false));
}

}  // namespace tenon::adagrad

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.adagrad", .version = "0.1.0", .summary = "Adagrad optimizer"},
             tenon::adagrad::Adagrad)
