// Speed and remaining time from what passed between two looks. Real time, even where the run's clock is
// simulated: it answers how long a person has to wait.
#pragma once

#include <cstdint>
#include <limits>

namespace tenon::progress {

class Meter {
 public:
  /// Where counting begins; the first look gives rates from here on.
  void start(double now, std::int64_t slots, std::int64_t units);
  /// Totals at `now` in seconds. Looks closer together than 50 ms are left for the next one.
  void look(double now, std::int64_t slots, std::int64_t units);
  bool started() const { return started_; }
  double units_per_second() const { return units_rate_; }  ///< NaN before the first look
  double seconds_for(std::int64_t slots) const { return static_cast<double>(slots) / slots_rate_; }

 private:
  bool started_ = false;
  double at_ = 0;
  std::int64_t slots_ = 0, units_ = 0;
  double slots_rate_ = std::numeric_limits<double>::quiet_NaN();
  double units_rate_ = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace tenon::progress
