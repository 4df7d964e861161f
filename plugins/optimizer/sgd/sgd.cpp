// Optimizer `sgd`: options to one fused update of the device. The formula stands in the header.
#include "sgd.hpp"

#include <tenon/error.hpp>
#include <tenon/operators_extra.hpp>

namespace tenon::sgd {
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

}  // namespace tenon::sgd
