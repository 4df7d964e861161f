// Detection of spikes, and the answers to them.
#include "spike_guard.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

namespace tenon::recovery_spike_guard {

SpikeGuard::SpikeGuard(const Options& options, Host& host)
    : RecoveryDecorator(options.component<Recovery>("inner")),
      host_(host),
      norm_factor_(options.real("norm_factor")),
      loss_factor_(options.real("loss_factor")),
      norms_(options.integer("window")),
      losses_(options.integer("window")),
      after_(options.integer("after")),
      patience_(options.integer("patience")),
      retries_(options.integer("retries")),
      warmup_(options.integer("warmup")),
      skip_(options.integer("skip")),
      reset_(options.boolean("reset_optimizer")) {
  if (inner().keep() == 0) {
    fail_config(
        "recovery spike_guard: its inner policy saves nothing, so there is nothing to go back to; "
        "choose e.g. [recovery.inner] type = \"full\"");
  }
}

void SpikeGuard::bind(RecoveryHost& host) {
  core_ = &host;
  if (host.run().workers > 1 || !host.run().shared_updates) {
    fail_config(
        "recovery 'spike_guard' watches gradient norms, which replicas that update alone and several workers "
        "do not share; take a sync strategy that exchanges gradients in every slot, and one worker");
  }
  RecoveryDecorator::bind(host);
}

void SpikeGuard::start(const RecoveryStart& start) {
  RecoveryDecorator::start(start);
  roll_backs_ = start.roll_backs;
  rolled_back_to_ = start.rolled_back_to;
  if (!start.rolled_back) return;
  core_->skip_batches(skip_);
  if (reset_) core_->reset_optimizer();
}

void SpikeGuard::before_slot(SlotStart& slot) {
  RecoveryDecorator::before_slot(slot);
  if (rolled_back_to_ >= 0) slot.rate_scale *= rate_scale(slot.slot - rolled_back_to_);
}

double SpikeGuard::rate_scale(std::int64_t slots_since) const {
  if (slots_since >= warmup_) return 1;
  return static_cast<double>(slots_since + 1) / static_cast<double>(warmup_ + 1);
}

// Replicas see different losses, and some ranks of a mesh none: with the mean of all, all decide alike.
void SpikeGuard::after_slot(const SlotOutcome& outcome) {
  RecoveryDecorator::after_slot(outcome);
  if (!outcome.gradient) return;
  double pair[2] = {outcome.loss_sum, outcome.loss_count};
  core_->sum(pair);
  const double loss = pair[1] > 0 ? pair[0] / pair[1] : 0;
  diverged_ = diverges(loss, outcome.gradient_norm);
  if (!diverged_) return;
  std::ostringstream text;
  text << "training diverges: slot " << outcome.slot << " has loss " << loss << ", gradient norm "
       << outcome.gradient_norm;
  host_.log(LogLevel::kWarning, text.str());
}

// A spike is not added to the typical values, or a series of spikes would become typical.
bool SpikeGuard::diverges(double loss, double gradient_norm) {
  if (!std::isfinite(loss) || !std::isfinite(gradient_norm)) return true;
  const bool known = norms_.count() >= std::min(after_, norms_.window());
  const bool spike =
      known && (gradient_norm > norm_factor_ * norms_.median() || loss > loss_factor_ * losses_.median());
  if (spike) return ++spikes_ >= patience_;
  spikes_ = 0;
  norms_.add(gradient_norm);
  losses_.add(loss);
  return false;
}

BoundaryPlan SpikeGuard::plan_boundary(const SaveMoment& moment) {
  BoundaryPlan plan = RecoveryDecorator::plan_boundary(moment);
  if (!diverged_) return plan;
  if (roll_backs_ >= retries_) {
    fail_run("training diverged again before slot " + std::to_string(moment.slot) + ", after " +
             std::to_string(roll_backs_) +
             " roll-back(s) for it: lower optimizer.lr, set run.clip, or let recovery 'spike_guard' try more "
             "often");
  }
  plan.rolls_back = true;
  plan.reason = "diverged";
  return plan;
}

void SpikeGuard::account(const std::function<void(std::string_view, double)>& sink) {
  RecoveryDecorator::account(sink);
  sink("divergences", static_cast<double>(roll_backs_));
}

void SpikeGuard::state(StateVisitor& visitor) {
  visitor.integer("spikes", spikes_);
  norms_.state(visitor, "norms");
  losses_.state(visitor, "losses");
  RecoveryDecorator::state(visitor);
}

}  // namespace tenon::recovery_spike_guard
