// Time of the next save by the clock: at a fixed interval, or at the one that minimises the time lost to
// saves and failures together. Used by full.hpp on rank 0; independent of slots and ranks.
//   Young (CACM 17, 1974):  T = sqrt(2 C M)
//   Daly (FGCS 22, 2006):   T = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C for C < 2M, else M
// T: work between two saves, C: cost of a save to the training thread, M: mean time between failures.
#pragma once

#include <tenon/recovery.hpp>

#include <cmath>
#include <optional>

namespace tenon::recovery_basic {

inline double young_interval(double cost, double mtbf) {
  return std::sqrt(2 * cost * mtbf);
}

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

}  // namespace tenon::recovery_basic
