// Optimizer `adamw`: options to one fused update of the device. The formula stands in the header.
#include "adamw.hpp"

#include <tenon/error.hpp>
#include <tenon/operators_extra.hpp>

namespace tenon::adamw {
namespace {

constexpr StateSlot kSlots[] = {{"exp_avg"}, {"exp_avg_sq"}};

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

void AdamW::step(const UpdateContext& context, const ParameterSlice& slice) {
  context.device->family<UpdateOps>().adamw(slice.weights, slice.gradients, slice.state[0], slice.state[1],
                                            {.lr = context.lr,
                                             .beta1 = beta1_,
                                             .beta2 = beta2_,
                                             .eps = eps_,
                                             .decay = slice.decay ? decay_ : 0.0,
                                             .count = context.count,
                                             .gradient_scale = context.gradient_scale});
}

}  // namespace tenon::adamw
