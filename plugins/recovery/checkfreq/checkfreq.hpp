// Recovery `checkfreq` (contract recovery/1): complete checkpoints as often as an allowed share of the
// training time permits, from the measured times of steps and saves (CheckFreq, FAST 2021).
#pragma once

#include "frequency.hpp"

#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <optional>

namespace tenon::recovery_checkfreq {

class CheckFreq final : public RecoveryBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("max_overhead", "0.05")
          .between(1e-6, 10)
          .doc_text("share of the time of plain slots that saves may add"),
      option::integer("profile", "20")
          .between(1, 1000000)
          .in_unit("slots")
          .doc_text("plain slots that are timed before the first save"),
      option::keep_checkpoints(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "checkfreq",
      .summary = "complete checkpoints as often as their measured cost allows",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};
  explicit CheckFreq(const Options& options);

  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  int keep() const override { return keep_; }
  /// Rank 0 only: profiles, and then counts slots.
  bool save_due(const SaveMoment& moment) override;
  void on_save(const SaveResult& result) override;

  /// Slots between saves; 0 until the first save was measured.
  std::int64_t interval() const { return frequency_.steps(); }

 private:
  struct Moment {
    std::int64_t slot = 0;
    double seconds = 0;
  };
  SaveFrequency frequency_;
  std::int64_t profile_;
  int keep_;
  bool save_at_end_;
  double iteration_ = 0;
  std::optional<Moment> began_;  ///< start of the profile
  std::optional<Moment> saved_;  ///< the newest requested save
  bool asked_ = false;
};

}  // namespace tenon::recovery_checkfreq
