// Steps between saves from the measured times of steps and saves: the rule of CheckFreq (FAST 2021;
// papers/recovery.md section 2.3, as in its published code). Used by recovery `checkfreq`; has no clock and
// measures nothing itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tenon::recovery_checkfreq {

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

}  // namespace tenon::recovery_checkfreq
