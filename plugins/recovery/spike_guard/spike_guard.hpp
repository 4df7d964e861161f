// Recovery `spike_guard` (contract recovery/1): watches gradient norm and loss. When training diverges, all
// ranks roll back to the newest checkpoint, optimizer state begins at zero, and the learning rate warms up
// again. The inner policy decides the content of saves and the answers to other failures.
#pragma once

#include "running_median.hpp"

#include <tenon/host.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>

namespace tenon::recovery_spike_guard {

class SpikeGuard final : public RecoveryDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("norm_factor", "10")
          .at_least(1)
          .doc_text("a gradient norm of more than so many times the usual one is a spike"),
      option::real("loss_factor", "2")
          .at_least(1)
          .doc_text("a loss of more than so many times the usual one is a spike"),
      option::integer("window", "50")
          .between(2, 100000)
          .in_unit("slots")
          .doc_text("what is usual: the median over so many"),
      option::integer("after", "20")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots that are seen before a finite value can be a spike"),
      option::integer("patience", "3")
          .between(1, 100000)
          .in_unit("slots")
          .doc_text(
              "spikes in a row until training counts as diverged; values that are not finite count at once"),
      option::integer("retries", "3").between(0, 1000).doc_text("roll-backs before the run ends"),
      option::boolean("reset_optimizer", "true").doc_text("moments begin at zero after a roll-back"),
      option::integer("warmup", "50")
          .between(0, 1000000000)
          .in_unit("slots")
          .doc_text("over which the learning rate rises again from 0; 0 = at once"),
      option::integer("skip", "0")
          .between(0, 1000000000)
          .in_unit("micro-batches")
          .doc_text("that each replica passes over after a roll-back"),
      option::component("inner", "recovery/1").mandatory().doc_text("policy that saves, e.g. full"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "spike_guard",
      .summary = "goes back when gradients explode, with moments at zero and a new warm-up",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};
  SpikeGuard(const Options& options, Host& host);

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

}  // namespace tenon::recovery_spike_guard
