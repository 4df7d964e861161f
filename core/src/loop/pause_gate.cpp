// One thread holds the pause at a time. It is itself often inside (an actor that pauses the workers), so the
// gate knows the threads inside.
#include "loop/pause_gate.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::train {

bool PauseGate::inside() const {
  return std::find(inside_.begin(), inside_.end(), std::this_thread::get_id()) != inside_.end();
}

// The caller is not counted as running. A pause lasts as long as an evaluation or a save; each wait of its
// holder has a deadline, and the holder lets go when it fails, so this wait needs none of its own.
void PauseGate::wait_for_turn(std::unique_lock<std::mutex>& lock) {
  while (depth_ > 0) {
    std::string why;
    const auto outcome = changed_.wait(lock, clock_, WaitDeadline(deadline_s_), "the end of a pause", &why);
    if (outcome == ClockEvent::Outcome::kLate && clock_.simulated()) throw DeadlineError(why);
  }
}

void PauseGate::take_over() {
  const std::lock_guard lock(mutex_);
  holder_ = std::this_thread::get_id();
}

void PauseGate::enter() {
  std::unique_lock lock(mutex_);
  wait_for_turn(lock);
  inside_.push_back(std::this_thread::get_id());
  ++running_;
}

void PauseGate::leave() noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(inside_, std::this_thread::get_id());
  --running_;
  changed_.notify(clock_, clock_.now());
}

void PauseGate::boundary() {
  std::unique_lock lock(mutex_);
  if (depth_ == 0 || holder_ == std::this_thread::get_id()) return;
  --running_;
  changed_.notify(clock_, clock_.now());
  try {
    wait_for_turn(lock);
  } catch (...) {
    ++running_;  // leave() will take it back
    throw;
  }
  ++running_;
}

void PauseGate::pause() {
  std::unique_lock lock(mutex_);
  if (depth_ > 0 && holder_ == std::this_thread::get_id()) {
    ++depth_;
    return;
  }
  const int self = inside() ? 1 : 0;
  running_ -= self;
  if (self > 0) changed_.notify(clock_, clock_.now());
  const auto give_up = [&] {
    running_ += self;
    changed_.notify(clock_, clock_.now());
  };
  try {
    wait_for_turn(lock);
  } catch (...) {
    give_up();
    throw;
  }
  depth_ = 1;
  holder_ = std::this_thread::get_id();
  const WaitDeadline deadline(deadline_s_);
  while (running_ > 0) {
    if (changed_.wait(lock, clock_, deadline, "workers and actors to reach a slot boundary") ==
        ClockEvent::Outcome::kLate) {
      const int late = running_;
      depth_ = 0;
      holder_ = {};
      give_up();
      throw DeadlineError(fmt::format("{} worker(s) or actor(s) did not reach a slot boundary within {} s",
                                      late, deadline_s_));
    }
  }
}

void PauseGate::resume() {
  const std::lock_guard lock(mutex_);
  if (--depth_ > 0) return;
  holder_ = {};
  if (inside()) ++running_;
  changed_.notify(clock_, clock_.now());
}

}  // namespace tenon::train
