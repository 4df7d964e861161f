// Recovery `full` (contract recovery/1): saves everything every N slots, every N seconds, or as often as
// failures and the cost of a save make worthwhile, and at the end. After a failure all ranks roll back to the
// newest valid checkpoint. At most one interval of work is lost.
#pragma once

#include "save_clock.hpp"

#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

namespace tenon::recovery_basic {

class Full : public RecoveryBase {
 public:
  static constexpr const char* kFormulas[] = {"young", "daly", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("every", nullptr)
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots from one checkpoint to the next; 100 when neither this nor a time is given"),
      option::real("every_seconds", nullptr)
          .at_least(0.001)
          .in_unit("s")
          .doc_text("seconds from the end of one save to the next, by the clock of rank 0"),
      option::real("mtbf_seconds", nullptr)
          .at_least(0.001)
          .in_unit("s")
          .doc_text("mean time between failures: the interval follows from it and from the cost of a save"),
      option::text("formula", "\"young\"")
          .one_of(kFormulas)
          .doc_text("with mtbf_seconds: sqrt(2 cost mtbf), or Daly's correction of it"),
      option::real("save_seconds", nullptr)
          .at_least(0)
          .in_unit("s")
          .doc_text("with mtbf_seconds: cost of a save; absent: measured, the first one at the first slot"),
      option::keep_checkpoints(),
      option::save_in_background(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "full",
      .summary = "complete checkpoints by slots or by the clock, resume from the newest valid one",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};
  explicit Full(const Options& options);

  /// Saves by slots depend only on the moment, so that a resumed run saves at the slots of an uninterrupted
  /// one.
  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  int keep() const override { return keep_; }
  bool save_due(const SaveMoment& moment) override { return clock_.due(moment); }
  void on_save(const SaveResult& result) override;

 private:
  std::int64_t every_;  ///< 0 = by the clock
  SaveClock clock_;
  int keep_;
  bool background_, save_at_end_;
};

}  // namespace tenon::recovery_basic
