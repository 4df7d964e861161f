// The run's clock. With the wall clock, time passes by itself. With the simulated clock every worker and
// actor has its own virtual time, one of them runs at a time, and an interaction runs only when no other
// could come earlier (ties by replica, then actor): asynchronous strategies become deterministic experiments.
#pragma once

#include <tenon/abi.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

class Clock {
 public:
  virtual ~Clock();
  virtual bool simulated() const = 0;
  /// Seconds since the run began, for the calling thread.
  virtual double now() const = 0;
  /// Declares `seconds` of work done by the calling thread. Simulated: advances its time and lets earlier
  /// ones run.
  virtual void advance(double seconds) = 0;
  /// Announces a participant before its thread starts, so that no other participant overtakes it. Returns its
  /// id.
  virtual int announce(int replica, int actor, std::string_view name) = 0;
  /// The calling thread becomes participant `id`; simulated: returns when it may run.
  virtual void enter(int id) = 0;
  /// The calling thread is no longer a participant. Must be called even on failure.
  virtual void leave() = 0;
  /// Simulated: parks the caller until another participant calls `wake(id, at)`; its time becomes max(own,
  /// at). Wall: must not be called. Throws DeadlineError if no participant can ever run again.
  virtual void park(std::string_view waiting_for) = 0;
  virtual void wake(int id, double at) = 0;
  /// Participant id of the calling thread, -1 when none.
  virtual int current() const = 0;
};

/// Time since this call. `advance` does nothing: real work has taken its real time already.
std::unique_ptr<Clock> make_wall_clock();

/// Virtual time. One participant runs at a time: the runnable one with the smallest (time, replica, actor).
/// Announce all first participants before starting any of their threads; one announced later starts at its
/// announcer's time. `wake` on a participant that is not parked lets its next `park` return at once, so no
/// wake is ever lost; therefore a parked caller looks at its condition again whenever `park` returns.
/// `deadline_wall_s`: the longest real time that one participant may run without calling the clock. When it
/// passes, or when all participants are parked, the clock stops: every waiting participant gets a
/// DeadlineError that lists the participants and what each waits for, and so does every later call that would
/// wait.
std::unique_ptr<Clock> make_simulated_clock(double deadline_wall_s);

/// After so long a thread looks at its condition again even if it hears nothing. Condition variables of the
/// GNU C library before 2.41 can lose a wake-up (its bug 25847); a rank that slept on to its deadline would
/// end the run.
inline constexpr std::chrono::seconds kLookAgain{1};

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

  /// Wakes all waiting threads. Call it under the same lock. Simulated: their time becomes at least `at`.
  void notify(Clock& clock, double at);

 private:
  std::condition_variable changed_;
  std::vector<int> parked_;  // participants; grows to the largest number that ever waited at once
};

TENON_ABI_END
