// The wall clock, and waiting under either clock (<tenon/clock.hpp>).
#include <tenon/clock.hpp>

#include "base/elapsed.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

Clock::~Clock() = default;

// The wall clock: steady time since its construction, and the ids of participants.

namespace {

class WallClock final : public Clock {
 public:
  bool simulated() const override { return false; }

  double now() const override { return base::seconds_since(begin_); }

  void advance(double) override {}

  int announce(int, int, std::string_view) override {
    const std::lock_guard lock(mutex_);
    return announced_++;
  }

  void enter(int id) override {
    const std::lock_guard lock(mutex_);
    if (id < 0 || id >= announced_) {
      fail_run("wall clock: participant " + std::to_string(id) + " enters but was never announced");
    }
    inside_.emplace_back(std::this_thread::get_id(), id);
  }

  void leave() override {
    const std::lock_guard lock(mutex_);
    std::erase_if(inside_, [](const auto& entry) { return entry.first == std::this_thread::get_id(); });
  }

  void park(std::string_view waiting_for) override {
    fail_run("wall clock: park('" + std::string(waiting_for) + "') is only for the simulated clock");
  }
  void wake(int, double) override { fail_run("wall clock: wake is only for the simulated clock"); }

  int current() const override {
    const std::lock_guard lock(mutex_);
    for (const auto& [thread, id] : inside_) {
      if (thread == std::this_thread::get_id()) return id;
    }
    return -1;
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  int announced_ = 0;
  std::vector<std::pair<std::thread::id, int>> inside_;
};

}  // namespace

std::unique_ptr<Clock> make_wall_clock() {
  return std::make_unique<WallClock>();
}

// Waiting under either clock.

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
  const OutsideCall waits;
  if (!clock.simulated()) {
    const auto until = std::min(deadline.time(), std::chrono::steady_clock::now() + kLookAgain);
    const bool heard = changed_.wait_until(lock, until) == std::cv_status::no_timeout;
    return heard || until < deadline.time() ? Outcome::kWoken : Outcome::kLate;
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
  const OutsideCall waits;
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
