// Optimizer `muon` (Jordan et al. 2024), as torch.optim.Muon, with the products in the parameters' own dtype:
//   b <- b + (1 - momentum) (g - b)          u = nesterov ? g + momentum (b - g) : b
//   X = u / max(|u|_F, eps), then `iterations` times  A = X X^T,  X <- a X + (b A + c A^2) X
//   w <- w (1 - lr decay) - lr s X          s = sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns))
// for hidden matrices. Everything else goes to the optimizer [optimizer.inner]: tensors of other ranks,
// complex ones, row tables, and names that match `inner_match`.
// orthogonal.hpp has the iterations.
#include "orthogonal.hpp"

#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/options.hpp>
#include <tenon/plugin.hpp>
#include <tenon/state.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace tenon::muon {

class Muon final : public OptimizerBase,
                   public OptimizerBinding,
                   public RowOptimizer,
                   private IdentitiesOf<Muon> {
 public:
  static constexpr const char* kAdjustments[] = {"original", "match_rms_adamw", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "0.02").at_least(0).doc_text("learning rate of the matrices before the schedule"),
      option::real("momentum", "0.95")
          .between(0, 0.9999999)
          .doc_text("fraction of the previous direction that is kept"),
      option::boolean("nesterov", "true").doc_text("Nesterov momentum"),
      option::real("weight_decay", "0.1")
          .at_least(0)
          .doc_text("decoupled weight decay per unit of learning rate"),
      option::integer("iterations", "5").between(1, 100).doc_text("Newton-Schulz iterations"),
      option::reals("coefficients", "[3.4445, -4.7750, 2.0315]")
          .length(3)
          .doc_text("a, b, c of X <- a X + (b A + c A^2) X"),
      option::real("eps", "1e-7").at_least(1e-300).doc_text("smallest norm by which a direction is divided"),
      option::text("adjust", "\"original\"")
          .one_of(kAdjustments)
          .doc_text("how the learning rate is scaled by shape; match_rms_adamw: updates as large as AdamW's"),
      option::texts("inner_match", "[\"*wte*\", \"*wpe*\", \"*embed*\", \"*head*\"]")
          .doc_text("names of matrices that the inner optimizer updates; * matches any text"),
      option::component("inner", "optimizer/1")
          .mandatory()
          .doc_text(
              "optimizer of all parameters that are not hidden matrices; its lr follows the same schedule"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "muon",
      .summary = "orthogonalised updates of hidden matrices, another optimizer for the rest",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "where the inner optimizer has every matrix, it is all of the optimizer",
       .options = "lr = 0.01\ninner_match = ['*']\ninner = {type = 'adamw', lr = 0.01}",
       .other = "type = 'adamw'\nlr = 0.01"},
  };

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

namespace {

constexpr StateSlot kMomentumOnly[] = {{"momentum_buffer"}};

}  // namespace

Muon::Muon(const Options& options)
    : OptimizerBase(options),
      momentum_(options.real("momentum")),
      decay_(options.real("weight_decay")),
      eps_(options.real("eps")),
      nesterov_(options.boolean("nesterov")),
      match_rms_(options.text("adjust") == "match_rms_adamw"),
      inner_(options.component<Optimizer>("inner")),
      inner_rows_(static_cast<RowOptimizer*>(inner_->query(RowOptimizer::kId))),
      inner_state_(inner_->slots().size()) {
  for (const std::string_view pattern : options.texts("inner_match")) inner_match_.emplace_back(pattern);
  if (!inner_->slots().empty() && inner_->slots()[0].dimensions != StateSlot::kWeight) {
    fail_config(
        "optimizer muon keeps the momentum of matrices in the first state of its inner optimizer, which here "
        "has not the shape of the weights; choose another one, such as adamw");
  }
  const std::span<const double> coefficients = options.reals("coefficients");
  newton_schulz_ = {options.integer("iterations"), coefficients[0], coefficients[1], coefficients[2]};
}

std::span<const StateSlot> Muon::slots() const {
  return inner_->slots().empty() ? std::span<const StateSlot>(kMomentumOnly) : inner_->slots();
}

void Muon::state(StateVisitor& visitor) {
  visitor.enter("inner");
  inner_->state(visitor);
  visitor.leave();
}

void* Muon::query(std::string_view interface_id) {
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  if (interface_id == OptimizerBinding::kId) return static_cast<OptimizerBinding*>(this);
  const bool rows = interface_id == RowOptimizer::kId && inner_rows_ != nullptr;
  return rows ? static_cast<RowOptimizer*>(this) : nullptr;
}

std::span<const RowStateSlot> Muon::row_slots() const {
  return inner_rows_->row_slots();
}

void Muon::step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                     const RowGradient& gradient) {
  inner_rows_->step_rows(inner_context(context), weights, state, gradient);
}

UpdateContext Muon::inner_context(const UpdateContext& context) const {
  UpdateContext own = context;
  own.lr = base_lr() > 0 ? context.lr * (inner_->base_lr() / base_lr()) : 0;
  return own;
}

bool Muon::hidden(const ParameterInfo& info) const {
  const ParameterSpec& spec = info.spec;
  if (spec.role != Role::kParameter || !spec.trainable || spec.shape.rank() != 2) return false;
  if (spec.dtype != DType::kF32 && spec.dtype != DType::kF64) return false;
  return std::none_of(inner_match_.begin(), inner_match_.end(),
                      [&](const std::string& pattern) { return matches_pattern(pattern, spec.name); });
}

void Muon::bind(const OptimizerSetup& setup) {
  orthogonalizer_ = std::make_unique<Orthogonalizer>(*setup.device);
  plans_.assign(setup.parameters.size(), nullptr);
  for (const ParameterInfo& info : setup.parameters) {
    if (!hidden(info)) continue;
    if (!(info.local == info.spec.shape)) {
      fail_config("optimizer muon needs unsharded matrices, and '" + info.spec.name +
                  "' is sharded over the mesh: this rank holds " + info.local.text() + " of " +
                  info.spec.shape.text() +
                  "; add its name to optimizer.inner_match, or choose another optimizer");
    }
    plans_[info.index] = orthogonalizer_->plan(info.local[0], info.local[1], info.spec.dtype);
  }
  orthogonalizer_->reserve();
  if (auto* inner = static_cast<OptimizerBinding*>(inner_->query(OptimizerBinding::kId))) inner->bind(setup);
}

void Muon::step_inner(const UpdateContext& context, const ParameterSlice& slice) {
  const UpdateContext own = inner_context(context);
  if (!inner_->elementwise()) {
    ParameterSlice same = slice;
    same.state = slice.state.first(inner_state_.size());
    return inner_->step(own, same);
  }
  for (std::size_t i = 0; i < inner_state_.size(); ++i) inner_state_[i] = flat_reals(slice.state[i]);
  inner_->step(own, {.weights = flat_reals(slice.weights),
                     .gradients = flat_reals(slice.gradients),
                     .state = inner_state_,
                     .decay = slice.decay,
                     .parameter = slice.parameter});
}

void Muon::step(const UpdateContext& context, const ParameterSlice& slice) {
  const std::size_t index = slice.parameter;
  const OrthogonalPlan* plan = slice.parameter < 0 ? nullptr : plans_.at(index);
  if (plan == nullptr) return step_inner(context, slice);

  Device& device = *context.device;
  auto& elementwise = device.family<Elementwise>();
  const TensorView& buffer = slice.state[0];
  const TensorView direction = orthogonalizer_->input(*plan);
  device.copy(slice.gradients, direction);
  if (context.gradient_scale != 1) elementwise.scale(direction, context.gradient_scale);
  elementwise.lerp(buffer, direction, 1 - momentum_);
  if (nesterov_) {
    elementwise.lerp(direction, buffer, momentum_);
  } else {
    device.copy(buffer, direction);
  }
  const TensorView update = orthogonalizer_->orthogonal(*plan, newton_schulz_, eps_);

  const auto rows = static_cast<double>(plan->rows), columns = static_cast<double>(plan->columns);
  const double factor =
      match_rms_ ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
  if (slice.decay && decay_ > 0) elementwise.scale(slice.weights, 1 - context.lr * decay_);
  elementwise.axpy(-context.lr * factor, update, slice.weights);
}

}  // namespace tenon::muon

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.muon", .version = "0.1.0", .summary = "Muon optimizer"},
             tenon::muon::Muon)
