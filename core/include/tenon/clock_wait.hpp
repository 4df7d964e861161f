// How a thread of a run waits for a change made by another one, the same way under both clocks: on a
// condition variable with a real deadline, or parked on the simulated clock. It knows nothing of what is
// waited for.
#pragma once

#include <tenon/clock.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// A limit in real time, counted from its construction. The simulated clock ignores it and bounds waits
/// itself.
class WaitDeadline {
 public:
  explicit WaitDeadline(double seconds);
  std::chrono::steady_clock::time_point time() const { return time_; }

 private:
  std::chrono::steady_clock::time_point time_;
};

class ClockEvent {
 public:
  enum class Outcome { kWoken, kLate };

  /// Releases `lock` (which guards the awaited condition) while waiting and holds it again on return. kWoken
  /// may be spurious: look at the condition again. kLate: the deadline passed, or the simulated clock
  /// stopped, and then `why` (if given) gets its reason. Throws Error(kRun) under a simulated clock that the
  /// thread has not entered.
  Outcome wait(std::unique_lock<std::mutex>& lock, Clock& clock, const WaitDeadline& deadline,
               std::string_view waiting_for, std::string* why = nullptr);

  /// Returns when the run's clock shows `at`, or earlier when notified. Throws DeadlineError if the simulated
  /// clock has stopped.
  Outcome wait_until(std::unique_lock<std::mutex>& lock, Clock& clock, double at);

  /// Wakes all who wait, under the same lock. Simulated: their time becomes at least `at`.
  void notify(Clock& clock, double at);

 private:
  std::condition_variable changed_;
  std::vector<int> parked_;  // participants; grows to the largest number that ever waited at once
};

TENON_ABI_END
