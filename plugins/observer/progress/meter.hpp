// Speed and remaining time from the progress between two samples. Uses real time even if the run's clock is
// simulated, since it tells how long a person has to wait.
#pragma once

#include <cstdint>
#include <limits>

namespace tenon::progress {

class Meter {
 public:
  /// Starts counting; the first sample yields rates from here on.
  void start(double now, std::int64_t slots, std::int64_t units);
  /// Adds a sample: totals at `now` in seconds. Skips a sample less than 50 ms after the last one; the next
  /// one covers it.
  void look(double now, std::int64_t slots, std::int64_t units);
  bool started() const { return started_; }
  double units_per_second() const { return units_rate_; }  ///< NaN before the first sample
  double seconds_for(std::int64_t slots) const { return static_cast<double>(slots) / slots_rate_; }

 private:
  bool started_ = false;
  double at_ = 0;
  std::int64_t slots_ = 0, units_ = 0;
  double slots_rate_ = std::numeric_limits<double>::quiet_NaN();
  double units_rate_ = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace tenon::progress
