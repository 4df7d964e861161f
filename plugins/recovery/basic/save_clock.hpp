// When the next save is due by the clock: at a fixed interval, or at the one that loses least time to saves
// and to failures together. Serves full.hpp on rank 0; knows nothing of slots or ranks.
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
  std::optional<double> mtbf;   ///< seconds; without `every`
  std::optional<double> cost;   ///< declared seconds of a save; absent: that of the last one
  bool daly = false;
};

class SaveClock {
 public:
  explicit SaveClock(const SaveClockSettings& settings) : settings_(settings) {}

  bool active() const { return settings_.every || settings_.mtbf; }

  /// Asked at every slot boundary; counts from the first one, then from the end of each save.
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
  /// A save happens now, whoever asked for it.
  void saving(const SaveMoment& moment) {
    saved_ = moment.seconds;
    asked_ = failed_ = skipped_ = false;
  }
  /// A save that left nothing is tried again before the whole interval has passed.
  void ended(bool committed, bool skipped) {
    failed_ = !committed;
    skipped_ = skipped;
  }

  /// Seconds of work from one save to the next. Zero until the first cost is known: it takes a save to
  /// measure one.
  double interval() const {
    if (settings_.every) return *settings_.every;
    const double cost = settings_.cost ? *settings_.cost : cost_;
    return settings_.daly ? daly_interval(cost, *settings_.mtbf) : young_interval(cost, *settings_.mtbf);
  }

 private:
  static constexpr double kRetryShare = 0.1;

  SaveClockSettings settings_;
  std::optional<double> origin_;  ///< where the interval begins
  std::optional<double> saved_;   ///< when the last save began, until its cost is known
  double cost_ = 0;
  bool asked_ = false;  ///< answered yes, and the save has not come yet
  bool failed_ = false, skipped_ = false;
};

}  // namespace tenon::recovery_basic
