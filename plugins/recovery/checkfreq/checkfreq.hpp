// Recovery `checkfreq` (contract recovery/1): complete checkpoints as often as an allowed share of the
// training time permits, from the measured times of steps and saves (CheckFreq, FAST 2021).
// It profiles slots, then saves, then adapts the interval.
#pragma once

#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace tenon::recovery_checkfreq {

// Steps between saves from the measured times of steps and saves: the rule of CheckFreq (FAST 2021;
// papers/recovery.md section 2.3, as in its published code). Used by recovery `checkfreq`; has no clock and
// measures nothing itself.

/// All in seconds, each at least 0.
struct SaveProfile {
  double iteration = 0;  ///< mean of a step without a save
  double overhead = 0;   ///< of one save to the training thread: the cheapest snapshot
  double full = 0;       ///< one save from the snapshot until it is persistent
};

/// Not thread-safe.
class SaveFrequency {
 public:
  /// `max_overhead`: time that saves may add, as a share of the time of plain steps.
  explicit SaveFrequency(double max_overhead = 0.05) : max_overhead_(max_overhead) {}

  /// Sets the interval to max(ceil((full - overhead) / iteration), 1) steps: the write then ends by the next
  /// save, and no snapshot waits for the previous one. Discards earlier corrections.
  void profiled(const SaveProfile& profile) {
    iteration_ = profile.iteration;
    const double steps = std::ceil((profile.full - profile.overhead) / profile.iteration);
    // The comparison is false for NaN (0 / 0 with a stopped clock); every step may then be saved.
    steps_ = steps > 1 ? static_cast<std::int64_t>(std::min(steps, kMostSteps)) : 1;
    overhead_ = 0;
  }

  /// Records that `steps` steps, including one save, took `seconds`. If the overhead exceeds the limit, the
  /// interval grows by two steps; it never shrinks. Call it once per save; before profiled() it has no
  /// effect.
  void measured(double seconds, std::int64_t steps) {
    const double plain = iteration_ * static_cast<double>(steps);
    if (!(plain > 0)) return;
    const double added = std::max(seconds - plain, 0.0);
    overhead_ = added / plain;
    if (added > max_overhead_ * plain) steps_ += kStepsMore;
  }

  /// Steps between saves; 0 before profiled().
  std::int64_t steps() const { return steps_; }
  /// The last measured overhead, as a share of the time of plain steps.
  double overhead() const { return overhead_; }

 private:
  static constexpr std::int64_t kStepsMore = 2;
  static constexpr double kMostSteps = 1e15;  // for steps that take no time; leaves room to grow

  double max_overhead_;
  double iteration_ = 0, overhead_ = 0;
  std::int64_t steps_ = 0;
};

class CheckFreq final : public RecoveryBase, private IdentitiesOf<CheckFreq> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("max_overhead", "0.05")
          .between(1e-6, 10)
          .doc_text("time that saves may add, as a fraction of the time of slots without saves"),
      option::integer("profile", "20")
          .between(1, 1000000)
          .in_unit("slots")
          .doc_text("slots that are timed before the first save"),
      option::keep_checkpoints(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "checkfreq",
      .summary = "complete checkpoints as often as their measured cost allows",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "where nothing fails, saving changes no weight",
       .options = "profile = 2",
       .other = "type = 'none'"},
  };
  explicit CheckFreq(const Options& options);
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }

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

inline CheckFreq::CheckFreq(const Options& options)
    : frequency_(options.real("max_overhead")),
      profile_(options.integer("profile")),
      keep_(static_cast<int>(options.integer("keep"))),
      save_at_end_(options.boolean("save_at_end")) {}

inline SavePlan CheckFreq::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  plan.save = moment.requested || (moment.slot == moment.steps && save_at_end_);
  if (plan.save) asked_ = false;
  return plan;
}

inline bool CheckFreq::save_due(const SaveMoment& moment) {
  if (asked_) return false;
  if (!began_) began_ = Moment{moment.slot, moment.seconds};
  if (!saved_) {
    // Slots before any save measure the time of a plain slot.
    const std::int64_t slots = moment.slot - began_->slot;
    if (slots < profile_) return false;
    iteration_ = (moment.seconds - began_->seconds) / static_cast<double>(slots);
  } else {
    const std::int64_t slots = moment.slot - saved_->slot;
    if (frequency_.steps() == 0 || slots < frequency_.steps()) return false;
    frequency_.measured(moment.seconds - saved_->seconds, slots);
  }
  saved_ = Moment{moment.slot, moment.seconds};
  asked_ = true;
  return true;
}

inline void CheckFreq::on_save(const SaveResult& result) {
  if (result.status != SaveStatus::kCommitted || frequency_.steps() > 0 || !saved_) return;
  frequency_.profiled({.iteration = iteration_,
                       .overhead = result.copy_s,
                       .full = result.copy_s + result.write_s + result.commit_s});
}

}  // namespace tenon::recovery_checkfreq
