// Recovery `spike_guard` (contract recovery/1): watches gradient norm and loss. When training diverges, all
// ranks go back to the newest checkpoint, optimizer state begins at zero, and the learning rate rises anew.
// What is saved, and what other failures lead to, is the inner policy's business.
#pragma once

#include "running_median.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>

namespace tenon::recovery_spike_guard {

class SpikeGuard final : public Recovery, public DivergenceWatch {
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
  explicit SpikeGuard(const Options& options);

  void bind(const RecoveryContext& context) override;
  void on_accesses(int table, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override {
    inner_->on_accesses(table, ids, counts);
  }
  bool save_due(const SaveMoment& moment) override { return inner_->save_due(moment); }
  SavePlan plan_save(const SaveMoment& moment) override { return inner_->plan_save(moment); }
  void on_save(const SaveResult& result) override { inner_->on_save(result); }
  FailureDecision on_failure(const FailureEvent& failure) override;
  void on_restored(const RestoredShard& shard) override { inner_->on_restored(shard); }
  int keep() const override { return inner_->keep(); }
  bool needs_commit() const override { return inner_->needs_commit(); }
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;
  void account(const std::function<void(std::string_view, double)>& sink) override;

  bool diverged(const SlotOutcome& outcome) override;
  bool resets_optimizer() const override { return reset_; }
  std::int64_t skipped_batches() const override { return skip_; }
  double rate_scale(std::int64_t slots_since) const override;

 private:
  double norm_factor_, loss_factor_;
  RunningMedian norms_, losses_;
  std::int64_t after_, patience_, retries_, warmup_, skip_;
  bool reset_;
  Recovery* inner_;
  std::int64_t divergences_ = 0;
  std::int64_t spikes_ = 0;  ///< in a row
};

}  // namespace tenon::recovery_spike_guard
