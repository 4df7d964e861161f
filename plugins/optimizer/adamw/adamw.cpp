// Optimizer `adamw`: maps options to one fused update of the device. The header has the formula.
#include "adamw.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/reference/update.hpp>
#include <tenon/sdk/row_update.hpp>

namespace tenon::adamw {
namespace {

constexpr StateSlot kSlots[] = {{"exp_avg"}, {"exp_avg_sq"}};
constexpr RowStateSlot kRowSlots[] = {{"exp_avg", 0}, {"exp_avg_sq", 0}};

template <typename T>
void update(const AdamWStep& step, const RowBlock& block) {
  const auto c = kernels::adamw_coefficients<T>(step.lr, step.beta1, step.beta2, step.eps, step.decay,
                                                step.count, step.gradient_scale);
  kernels::reference::adamw<T>(c, block.gradients.as<T>(), block.weights.as<T>(), block.state[0].as<T>(),
                               block.state[1].as<T>(), nullptr, block.weights.elements());
}

}  // namespace

AdamW::AdamW(const Options& options)
    : OptimizerBase(options), eps_(options.real("eps")), decay_(options.real("weight_decay")) {
  const std::span<const double> betas = options.reals("betas");
  if (betas.size() != 2) {
    fail_config("optimizer adamw: option 'betas' must hold two numbers such as [0.9, 0.999], found " +
                std::to_string(betas.size()));
  }
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
  if (interface_id == RowOptimizer::kId) return static_cast<RowOptimizer*>(this);
  return interface_id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
}

void AdamW::bind(const OptimizerSetup& setup) {
  undecayed_.assign(setup.parameters.size(), false);
  for (const ParameterInfo& info : setup.parameters)
    undecayed_[static_cast<std::size_t>(info.index)] = !info.spec.decay;
}

AdamWStep AdamW::settings(const UpdateContext& context, bool decay) const {
  return {.lr = context.lr,
          .beta1 = beta1_,
          .beta2 = beta2_,
          .eps = eps_,
          .decay = decay ? decay_ : 0.0,
          .count = context.count,
          .gradient_scale = context.gradient_scale};
}

void AdamW::step(const UpdateContext& context, const ParameterSlice& slice) {
  context.device->family<UpdateOps>().adamw(slice.weights, slice.gradients, slice.state[0], slice.state[1],
                                            settings(context, slice.decay));
}

void AdamW::step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                      const RowGradient& gradient) {
  const auto index = static_cast<std::size_t>(gradient.parameter);
  const AdamWStep step = settings(context, index >= undecayed_.size() || !undecayed_[index]);
  if (context.device->space() != MemorySpace::kHost) {  // rows of tables are in host memory
    return for_each_row_block(weights, state, gradient, [&](const RowBlock& block) {
      block.weights.dtype == DType::kF32 ? update<float>(step, block) : update<double>(step, block);
    });
  }
  auto& rules = context.device->family<UpdateOps>();
  for_each_row_block(weights, state, gradient, [&](const RowBlock& block) {
    rules.adamw(block.weights, block.gradients, block.state[0], block.state[1], step);
  });
}

}  // namespace tenon::adamw
