// Steps of outer.hpp.
#include "outer.hpp"

#include <tenon/error.hpp>

namespace tenon::sync_local {

Outer::Outer(const Options& options)
    : kind_(options.text("outer") == "adam"  ? Kind::kAdam
            : options.text("outer") == "sgd" ? Kind::kSgd
                                             : Kind::kNesterov),
      lr_(options.real("outer_lr")),
      momentum_(options.real("outer_momentum")),
      eps_(options.real("outer_eps")) {
  const std::span<const double> betas = options.reals("outer_betas");
  if (betas.size() != 2)
    fail_config("outer_betas has " + std::to_string(betas.size()) +
                " numbers; expected two, e.g. [0.9, 0.95]");
  beta1_ = betas[0];
  beta2_ = betas[1];
}

void Outer::start(Replica& replica) {
  update_ = &replica.device().family<UpdateOps>();
  if (kind_ == Kind::kAdam) {
    first_ = &replica.create_set("outer_exp_avg");
    second_ = &replica.create_set("outer_exp_avg_sq");
  } else if (momentum_ > 0) {
    first_ = &replica.create_set("outer_momentum");
  }
}

void Outer::step(int arena, TensorView anchor, TensorView g) {
  if (kind_ == Kind::kAdam) {
    AdamWStep step;
    step.lr = lr_, step.beta1 = beta1_, step.beta2 = beta2_, step.eps = eps_;
    step.count = rounds_;
    update_->adamw(anchor, g, first_->arena(arena), second_->arena(arena), step);
    return;
  }
  SgdStep step;
  step.lr = lr_, step.momentum = momentum_;
  step.nesterov = kind_ == Kind::kNesterov && momentum_ > 0;
  update_->sgd(anchor, g, momentum_ > 0 ? first_->arena(arena) : TensorView{}, step);
}

}  // namespace tenon::sync_local
