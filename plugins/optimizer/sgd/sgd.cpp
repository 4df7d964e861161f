// Optimizer `sgd`: stochastic gradient descent with momentum, as torch.optim.SGD has it:
//   g <- g + decay w
//   b <- momentum b + (1 - dampening) g, the first update sets b = g
//   w <- w - lr (nesterov ? g + momentum b : b)
// Row tables are updated without momentum and decay: w <- w - lr g for the rows that a batch read.
// The rule is SgdRule of <tenon/sdk/update_rules.hpp>, which the device evaluates.
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <string>

namespace tenon::sgd {

class Sgd final : public OptimizerBase,
                  public RowOptimizer,
                  public OptimizerBinding,
                  private IdentitiesOf<Sgd> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-2").at_least(0).doc_text("learning rate before the schedule"),
      option::real("momentum", "0")
          .between(0, 0.9999999)
          .doc_text("fraction of the previous direction that is kept"),
      option::real("dampening", "0")
          .between(0, 1)
          .doc_text("fraction of the gradient that momentum leaves out"),
      option::boolean("nesterov", "false").doc_text("Nesterov momentum; needs momentum and no dampening"),
      option::real("weight_decay", "0")
          .at_least(0)
          .doc_text("L2 penalty: this times the weight is added to its gradient; not for biases and norms"),
  };
  static constexpr ComponentInfo kInfo{.id = "sgd",
                                       .summary = "gradient descent with momentum",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};
  static constexpr Identity kIdentities[] = {
      {.why = "dampening changes momentum, and here is none",
       .options = "lr = 0.05\ndampening = 0.5",
       .other = "type = 'sgd'\nlr = 0.05"},
      {.why = "the first step of Nesterov's momentum m is one of 1 + m times the rate",
       .options = "lr = 0.1\nmomentum = 0.5\nnesterov = true",
       .other = "type = 'sgd'\nlr = 0.15",
       .given = "run.steps = 1\nprecision.type = 'fp64'\nschedule.type = 'constant'\nsync.type = 'ddp'",
       .within = 1e-12},
  };

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

namespace {

constexpr StateSlot kSlots[] = {{"momentum_buffer"}};

}  // namespace

Sgd::Sgd(const Options& options)
    : OptimizerBase(options),
      momentum_(options.real("momentum")),
      dampening_(options.real("dampening")),
      decay_(options.real("weight_decay")),
      nesterov_(options.boolean("nesterov")) {
  if (nesterov_ && (momentum_ == 0 || dampening_ != 0)) {
    fail_config("optimizer sgd: nesterov = true needs momentum above 0 and dampening = 0");
  }
}

std::span<const StateSlot> Sgd::slots() const {
  if (momentum_ == 0) return {};
  return kSlots;
}

void Sgd::step(const UpdateContext& context, const ParameterSlice& slice) {
  const SgdStep step{.lr = context.lr,
                     .momentum = momentum_,
                     .dampening = dampening_,
                     .decay = slice.decay ? decay_ : 0.0,
                     .nesterov = nesterov_,
                     .first = context.count == 1,
                     .gradient_scale = context.gradient_scale};
  with_sgd_rule(step, [&](const auto& rule) { update_slice(*context.device, slice, rule); });
}

void* Sgd::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  if (interface_id == RowOptimizer::kId) return static_cast<RowOptimizer*>(this);
  return interface_id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
}

// PyTorch's buffer of a sparse gradient accumulates every row that was ever read and moves all of them in
// every step. A buffer that leaves unread rows alone would be another rule under the same name.
void Sgd::bind(const OptimizerSetup& setup) {
  refuse_decayed_tables("sgd", decay_, setup.parameters);
  if (momentum_ == 0) return;
  for (const ParameterInfo& info : setup.parameters) {
    if (info.spec.role != Role::kRowTable || !info.spec.trainable) continue;
    fail_config("optimizer sgd: momentum cannot be used with the row table '" + info.spec.name +
                "': it would keep moving rows that no batch reads; set momentum = 0, or choose a rule with a "
                "rate per row or weight (adagrad, rowwise_adagrad, adamw)");
  }
}

void Sgd::step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                    const RowGradient& gradient) {
  const SgdStep step{.lr = context.lr, .gradient_scale = context.gradient_scale};
  update_rows(*context.device, weights, state, gradient, SgdRule<false>(step));
}

}  // namespace tenon::sgd

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sgd", .version = "0.1.0", .summary = "SGD optimizer"},
             tenon::sgd::Sgd)
