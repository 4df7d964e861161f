// What a spike is, and the answers to it.
#include "spike_guard.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::recovery_spike_guard {

SpikeGuard::SpikeGuard(const Options& options)
    : norm_factor_(options.real("norm_factor")),
      loss_factor_(options.real("loss_factor")),
      norms_(options.integer("window")),
      losses_(options.integer("window")),
      after_(options.integer("after")),
      patience_(options.integer("patience")),
      retries_(options.integer("retries")),
      warmup_(options.integer("warmup")),
      skip_(options.integer("skip")),
      reset_(options.boolean("reset_optimizer")),
      inner_(options.component<Recovery>("inner")) {
  if (inner_->keep() == 0) {
    fail_config(
        "recovery spike_guard: its inner policy saves nothing, so there is nothing to go back to; "
        "choose e.g. [recovery.inner] type = \"full\"");
  }
}

void SpikeGuard::bind(const RecoveryContext& context) {
  divergences_ = context.divergences;
  inner_->bind(context);
}

// A spike is not added to what is usual, or a run of them would become so.
bool SpikeGuard::diverged(const SlotOutcome& outcome) {
  if (!std::isfinite(outcome.loss) || !std::isfinite(outcome.gradient_norm)) return true;
  const bool known = norms_.count() >= std::min(after_, norms_.window());
  const bool spike = known && (outcome.gradient_norm > norm_factor_ * norms_.median() ||
                               outcome.loss > loss_factor_ * losses_.median());
  if (spike) return ++spikes_ >= patience_;
  spikes_ = 0;
  norms_.add(outcome.gradient_norm);
  losses_.add(outcome.loss);
  return false;
}

FailureDecision SpikeGuard::on_failure(const FailureEvent& failure) {
  if (failure.kind != FailureKind::kDivergence) return inner_->on_failure(failure);
  FailureDecision decision;
  decision.action = divergences_ < retries_ ? FailureAction::kRollBack : FailureAction::kAbort;
  return decision;
}

double SpikeGuard::rate_scale(std::int64_t slots_since) const {
  if (slots_since >= warmup_) return 1;
  return static_cast<double>(slots_since + 1) / static_cast<double>(warmup_ + 1);
}

void SpikeGuard::account(const std::function<void(std::string_view, double)>& sink) {
  inner_->account(sink);
  sink("divergences", static_cast<double>(divergences_));
}

void SpikeGuard::state(StateVisitor& visitor) {
  visitor.integer("spikes", spikes_);
  norms_.state(visitor, "norms");
  losses_.state(visitor, "losses");
  visitor.enter("inner");
  inner_->state(visitor);
  visitor.leave();
}

void* SpikeGuard::query(std::string_view interface_id) {
  if (interface_id == DivergenceWatch::kId) return static_cast<DivergenceWatch*>(this);
  return inner_->query(interface_id);
}

}  // namespace tenon::recovery_spike_guard
