// Optimizer `muon`: assignment of tensors to rules, momentum, and the step. The header has the formulas.
#include "muon.hpp"

#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::muon {
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
  const std::span<const double> coefficients = options.reals("coefficients");
  if (coefficients.size() != 3) {
    fail_config(
        "optimizer muon: option 'coefficients' must hold three numbers such as [3.4445, -4.7750, 2.0315], "
        "found " +
        std::to_string(coefficients.size()));
  }
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
      fail_config("optimizer muon needs whole matrices, and '" + info.spec.name +
                  "' is cut over the model grid: this rank holds " + info.local.text() + " of " +
                  info.spec.shape.text() +
                  "; add its name to optimizer.inner_match, or choose another optimizer");
    }
    plans_[static_cast<std::size_t>(info.index)] =
        orthogonalizer_->plan(info.local[0], info.local[1], info.spec.dtype);
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
  const auto index = static_cast<std::size_t>(slice.parameter);
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
