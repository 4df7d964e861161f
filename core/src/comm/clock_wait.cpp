// Waiting under either clock (<tenon/clock.hpp>).
#include <tenon/clock.hpp>

#include <tenon/error.hpp>

#include <algorithm>

TENON_ABI_BEGIN

namespace {

// A condition variable overflows on "for ever"; a year is longer than any run.
std::chrono::steady_clock::duration bounded(double seconds) {
  constexpr double kYear = 3.2e7;
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::clamp(seconds, 0.0, kYear)));
}

}  // namespace

WaitDeadline::WaitDeadline(double seconds) : time_(std::chrono::steady_clock::now() + bounded(seconds)) {}

ClockEvent::Outcome ClockEvent::wait(std::unique_lock<std::mutex>& lock, Clock& clock,
                                     const WaitDeadline& deadline, std::string_view waiting_for,
                                     std::string* why) {
  if (!clock.simulated()) {
    return changed_.wait_until(lock, deadline.time()) == std::cv_status::timeout ? Outcome::kLate
                                                                                 : Outcome::kWoken;
  }
  const int self = clock.current();
  if (self < 0) {
    fail_run("this thread waits for " + std::string(waiting_for) +
             " under the simulated clock without having entered it; announce and enter it first");
  }
  parked_.push_back(self);
  lock.unlock();
  Outcome outcome = Outcome::kWoken;
  try {
    clock.park(waiting_for);
  } catch (const DeadlineError& stopped) {
    outcome = Outcome::kLate;
    if (why) *why = stopped.what();
  }
  lock.lock();
  std::erase(parked_, self);
  return outcome;
}

ClockEvent::Outcome ClockEvent::wait_until(std::unique_lock<std::mutex>& lock, Clock& clock, double at) {
  if (!clock.simulated()) {
    const WaitDeadline deadline(at - clock.now());
    return changed_.wait_until(lock, deadline.time()) == std::cv_status::timeout ? Outcome::kLate
                                                                                 : Outcome::kWoken;
  }
  // Waking oneself for `at` and parking sets the time exactly; advance(at - now) could miss it by a rounding.
  if (const int self = clock.current(); self >= 0) clock.wake(self, at);
  std::string why;
  const Outcome outcome = wait(lock, clock, WaitDeadline(0), "its own link", &why);
  if (outcome == Outcome::kLate) throw DeadlineError(why);
  return outcome;
}

void ClockEvent::notify(Clock& clock, double at) {
  changed_.notify_all();
  if (!clock.simulated()) return;
  for (const int participant : parked_) clock.wake(participant, at);
  parked_.clear();
}

TENON_ABI_END
