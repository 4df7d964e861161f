// Recovery `spike_guard` (contract recovery/1): watches gradient norm and loss. When training diverges, all
// ranks roll back to the newest checkpoint, optimizer state begins at zero, and the learning rate warms up
// again. The inner policy decides the content of saves and the answers to other failures.
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/state.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace tenon::recovery_spike_guard {

/// The median of the newest numbers: a typical value that a spike does not move.
class RunningMedian {
 public:
  /// `window`: number of values that count, at least 1.
  explicit RunningMedian(std::int64_t window) : values_(window, 0.0) {}

  void add(double value) {
    values_[added_ % static_cast<std::int64_t>(values_.size())] = value;
    ++added_;
  }
  std::int64_t window() const { return static_cast<std::int64_t>(values_.size()); }
  std::int64_t count() const { return std::min(added_, static_cast<std::int64_t>(values_.size())); }
  /// Returns the lower one of two middle values; 0 when empty.
  double median() const {
    if (added_ == 0) return 0;
    std::vector<double> sorted(values_.begin(), values_.begin() + count());
    const auto middle = sorted.begin() + (count() - 1) / 2;
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

  void state(StateVisitor& visitor, const char* name) {
    visitor.enter(name);
    visitor.integer("added", added_);
    TensorView view;
    view.data = values_.data();
    view.dtype = DType::kF64;
    view.shape = Shape{static_cast<std::int64_t>(values_.size())};
    visitor.tensor("values", view);
    visitor.leave();
  }

 private:
  std::vector<double> values_;  ///< a ring buffer
  std::int64_t added_ = 0;
};

class SpikeGuard final : public RecoveryDecorator, private IdentitiesOf<SpikeGuard> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("norm_factor", "10")
          .at_least(1)
          .doc_text("a gradient norm above this multiple of the usual one is a spike"),
      option::real("loss_factor", "2")
          .at_least(1)
          .doc_text("a loss above this multiple of the usual one is a spike"),
      option::integer("window", "50")
          .between(2, 100000)
          .in_unit("slots")
          .doc_text("number of slots whose median is the usual value"),
      option::integer("after", "20")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots that are observed before a finite value can count as a spike"),
      option::integer("patience", "3")
          .between(1, 100000)
          .in_unit("slots")
          .doc_text(
              "consecutive spikes after which training counts as diverged; non-finite values count at once"),
      option::integer("retries", "3").between(0, 1000).doc_text("roll-backs before the run ends"),
      option::boolean("reset_optimizer", "true")
          .doc_text("set the optimizer's moments to zero after a roll-back"),
      option::integer("warmup", "50")
          .between(0, 1000000000)
          .in_unit("slots")
          .doc_text("slots over which the learning rate rises from 0 after a roll-back; 0 = none"),
      option::integer("skip", "0")
          .between(0, 1000000000)
          .in_unit("micro-batches")
          .doc_text("micro-batches that each replica skips after a roll-back"),
      option::component("inner", "recovery/1").mandatory().doc_text("policy that saves, e.g. full"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "spike_guard",
      .summary = "rolls back when gradients explode, with zeroed moments and a new warm-up",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "training that does not diverge is only watched",
       .options = "norm_factor = 1e30\nloss_factor = 1e30\ninner = {type = 'full', every = 3}",
       .other = "type = 'none'"},
  };
  SpikeGuard(const Options& options, Host& host);
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this)
                                          : RecoveryDecorator::query(id);
  }

  /// Throws Error(kConfig) if ranks do not share the norms that it watches.
  void bind(RecoveryHost& host) override;
  void start(const RecoveryStart& start) override;
  void before_slot(SlotStart& slot) override;
  void after_slot(const SlotOutcome& outcome) override;
  BoundaryPlan plan_boundary(const SaveMoment& moment) override;
  bool answers_non_finite() const override { return true; }
  void account(const std::function<void(std::string_view, double)>& sink) override;
  void state(StateVisitor& visitor) override;

  /// Returns whether training diverges, by a slot's mean loss over all ranks and its gradient norm.
  bool diverges(double loss, double gradient_norm);
  /// Returns the factor of the learning rate, `slots_since` slots after the newest roll-back.
  double rate_scale(std::int64_t slots_since) const;

 private:
  Host& host_;
  double norm_factor_, loss_factor_;
  RunningMedian norms_, losses_;
  std::int64_t after_, patience_, retries_, warmup_, skip_;
  bool reset_;
  RecoveryHost* core_ = nullptr;
  std::int64_t roll_backs_ = 0, rolled_back_to_ = -1;
  std::int64_t spikes_ = 0;  ///< consecutive spikes
  bool diverged_ = false;    ///< in the newest slot
};

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

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_spike_guard",
                               .version = "0.1.0",
                               .summary = "rolls back when gradients explode"},
             tenon::recovery_spike_guard::SpikeGuard)
