// Optimizer `sgd`: maps options to one fused update of the device. The header has the formula.
#include "sgd.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/reference/update.hpp>
#include <tenon/sdk/ops/update.hpp>
#include <tenon/sdk/row_update.hpp>

#include <string>

namespace tenon::sgd {
namespace {

constexpr StateSlot kSlots[] = {{"momentum_buffer"}};

template <typename T>
void update(const UpdateContext& context, const RowBlock& block) {
  kernels::SgdCoefficients<T> c{};
  c.grad_scale = static_cast<T>(context.gradient_scale);
  c.lr = static_cast<T>(context.lr);
  kernels::reference::sgd<T>(c, block.gradients.as<T>(), block.weights.as<T>(), nullptr, nullptr,
                             block.weights.elements());
}

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
  context.device->family<UpdateOps>().sgd(slice.weights, slice.gradients,
                                          momentum_ == 0 ? TensorView{} : slice.state[0],
                                          {.lr = context.lr,
                                           .momentum = momentum_,
                                           .dampening = dampening_,
                                           .decay = slice.decay ? decay_ : 0.0,
                                           .nesterov = nesterov_,
                                           .first = context.count == 1,
                                           .gradient_scale = context.gradient_scale});
}

void* Sgd::query(std::string_view interface_id) {
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
    fail_config(
        "optimizer sgd: momentum does not go with the row table '" + info.spec.name +
        "': it would move rows that no batch has read for long; set momentum = 0, or choose a rule with "
        "a rate per row or weight (adagrad, rowwise_adagrad, adamw)");
  }
}

void Sgd::step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                    const RowGradient& gradient) {
  if (context.device->space() != MemorySpace::kHost) {  // rows of tables are in host memory
    return for_each_row_block(weights, state, gradient, [&](const RowBlock& block) {
      block.weights.dtype == DType::kF32 ? update<float>(context, block) : update<double>(context, block);
    });
  }
  auto& rules = context.device->family<UpdateOps>();
  const SgdStep step{.lr = context.lr, .gradient_scale = context.gradient_scale};
  for_each_row_block(weights, state, gradient,
                     [&](const RowBlock& block) { rules.sgd(block.weights, block.gradients, {}, step); });
}

}  // namespace tenon::sgd
