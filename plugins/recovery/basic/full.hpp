// Recoveries `none` and `full` (contract recovery/1), and the clock that says when `full` saves.
#pragma once

#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <cmath>
#include <optional>

namespace tenon::recovery_basic {

// Time of the next save by the clock: at a fixed interval, or at the one that minimises the time lost to
// saves and failures together. Used by `full` on rank 0; independent of slots and ranks.
//   Young (CACM 17, 1974):  T = sqrt(2 C M)
//   Daly (FGCS 22, 2006):   T = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C for C < 2M, else M
// T: work between two saves, C: cost of a save to the training thread, M: mean time between failures.

inline double daly_interval(double cost, double mtbf) {
  if (cost >= 2 * mtbf) return mtbf;
  const double ratio = cost / (2 * mtbf);
  return young_interval(cost, mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost;
}

struct SaveClockSettings {
  std::optional<double> every;  ///< seconds
  std::optional<double> mtbf;   ///< seconds; used without `every`
  std::optional<double> cost;   ///< declared seconds of a save; absent: those of the last save
  bool daly = false;
};

class SaveClock {
 public:
  explicit SaveClock(const SaveClockSettings& settings) : settings_(settings) {}

  bool active() const { return settings_.every || settings_.mtbf; }

  /// Called at every slot boundary; counts from the first one, then from the end of each save.
  bool due(const SaveMoment& moment) {
    if (!active()) return false;
    if (saved_) {
      origin_ = *saved_ + moment.last_save_seconds;
      if (!skipped_) cost_ = moment.last_save_seconds;
      saved_.reset();
    } else if (!origin_) {
      origin_ = moment.seconds;
    }
    if (asked_) return false;
    const double wait = interval() * (failed_ ? kRetryShare : 1.0);
    return asked_ = moment.seconds - *origin_ >= wait;
  }
  /// A save happens now, for any reason.
  void saving(const SaveMoment& moment) {
    saved_ = moment.seconds;
    asked_ = failed_ = skipped_ = false;
  }
  /// After a failed save the next one is due before a whole interval has passed.
  void ended(bool committed, bool skipped) {
    failed_ = !committed;
    skipped_ = skipped;
  }

  /// Returns the seconds of work between saves. Zero until the first cost is known, since only a save can
  /// measure it.
  double interval() const {
    if (settings_.every) return *settings_.every;
    const double cost = settings_.cost ? *settings_.cost : cost_;
    return settings_.daly ? daly_interval(cost, *settings_.mtbf) : young_interval(cost, *settings_.mtbf);
  }

 private:
  static constexpr double kRetryShare = 0.1;

  SaveClockSettings settings_;
  std::optional<double> origin_;  ///< start of the interval
  std::optional<double> saved_;   ///< start of the last save, until its cost is known
  double cost_ = 0;
  bool asked_ = false;  ///< due() returned true, and the save has not happened yet
  bool failed_ = false, skipped_ = false;
};

/// Recovery `none` (contract recovery/1): saves nothing, so a failure ends the run and --resume has nothing
/// to read.
class None final : public RecoveryBase, private IdentitiesOf<None> {
 public:
  static constexpr ComponentInfo kInfo{.id = "none", .summary = "no checkpoints; a failure ends the run"};
  static constexpr Identity kIdentities[] = {
      {.why = "where nothing fails, saving changes no weight",
       .options = "",
       .other = "type = 'full'\nevery = 3"},
  };
  explicit None(const Options&) {}
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }
};

/// Recovery `full` (contract recovery/1): saves everything every N slots, every N seconds, or as often as
/// failures and the cost of a save make worthwhile, and at the end. After a failure all ranks roll back to
/// the newest valid checkpoint. At most one interval of work is lost.
class Full : public RecoveryBase, private ComponentIdentities {
 public:
  static constexpr const char* kFormulas[] = {"young", "daly", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("every", nullptr)
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between checkpoints; 100 if neither this nor a time is given"),
      option::real("every_seconds", nullptr)
          .at_least(0.001)
          .in_unit("s")
          .doc_text("seconds from the end of one save to the next, on the clock of rank 0"),
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
      .summary = "complete checkpoints at intervals of slots or of time; resumes from the newest valid one",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "where nothing fails, saving changes no weight",
       .options = "every = 2\nasync = false",
       .other = "type = 'none'"},
  };
  explicit Full(const Options& options);
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }

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
  std::span<const Identity> identities() const override { return kIdentities; }

  std::int64_t every_;  ///< 0 = by the clock
  SaveClock clock_;
  int keep_;
  bool background_, save_at_end_;
};

}  // namespace tenon::recovery_basic
