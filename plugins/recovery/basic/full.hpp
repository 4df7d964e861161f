// Recovery `full` (contract recovery/1): everything is saved every N slots and at the end; after a failure
// all ranks go back to the newest valid checkpoint. The work lost is at most N slots.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>

namespace tenon::recovery_basic {

class Full final : public Recovery {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("every", "100")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots from one checkpoint to the next"),
      option::integer("keep", "2")
          .between(2, 1000000)
          .doc_text("checkpoints that stay on disk; two, so that a damaged newest one is not the last"),
      option::boolean("async", "true")
          .doc_text("copy the state, then write while training goes on; false: training waits for the disk"),
      option::boolean("save_at_end", "true").doc_text("save after the last slot as well"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "full",
      .summary = "complete checkpoints every N slots, resume from the newest valid one",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};
  explicit Full(const Options& options)
      : every_(options.integer("every")),
        keep_(static_cast<int>(options.integer("keep"))),
        background_(options.boolean("async")),
        save_at_end_(options.boolean("save_at_end")) {}

  void on_accesses(int, std::span<const std::int64_t>, std::span<const std::uint32_t>) override {}
  /// Pure in the moment, so that a resumed run saves at the same slots.
  SavePlan plan_save(const SaveMoment& moment) override {
    SavePlan plan;
    const bool due = moment.slot > 0 && moment.slot % every_ == 0;
    const bool last = moment.slot == moment.steps;
    plan.save = last ? save_at_end_ || due : due;
    plan.background = background_;
    return plan;
  }
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  void on_restored(const RestoredShard&) override {}
  int keep() const override { return keep_; }
  bool needs_commit() const override { return false; }
  void state(StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t every_;
  int keep_;
  bool background_, save_at_end_;
};

}  // namespace tenon::recovery_basic
