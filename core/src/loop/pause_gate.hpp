// The pause of a replica: workers and actors park at their next slot boundary, and the thread that asked goes
// on alone. Saving, evaluation and membership changes happen only there.
#pragma once

#include <tenon/clock.hpp>

#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace tenon::train {

class PauseGate {
 public:
  PauseGate(Clock& clock, double deadline_s) : clock_(clock), deadline_s_(deadline_s) { inside_.reserve(64); }

  /// A thread that can change weights or state begins / ends: an actor its loop, a worker its slot.
  void enter();
  void leave() noexcept;
  /// Slot boundary of such a thread: waits here while another thread holds the pause.
  void boundary();
  /// Returns when every other thread inside is parked or gone. Nests in the thread that holds the pause;
  /// another thread that asks is parked until its turn comes. Throws DeadlineError.
  void pause();
  /// By the thread that paused.
  void resume();
  /// The pause becomes the caller's, of a thread that holds it and does nothing more.
  void take_over();

 private:
  bool inside() const;
  void wait_for_turn(std::unique_lock<std::mutex>& lock);

  Clock& clock_;
  double deadline_s_;
  std::mutex mutex_;
  ClockEvent changed_;
  std::vector<std::thread::id> inside_;  ///< entered, parked or not
  int running_ = 0;                      ///< of those, neither parked nor holding the pause
  int depth_ = 0;                        ///< of the pause held
  std::thread::id holder_;
};

/// Holds the pause for a scope.
class HeldPause {
 public:
  explicit HeldPause(PauseGate& gate) : gate_(gate) { gate_.pause(); }
  ~HeldPause() { gate_.resume(); }
  HeldPause(const HeldPause&) = delete;
  HeldPause& operator=(const HeldPause&) = delete;

 private:
  PauseGate& gate_;
};

/// A worker's slot, seen by the gate.
class InsideGate {
 public:
  explicit InsideGate(PauseGate& gate) : gate_(gate) { gate_.enter(); }
  ~InsideGate() { gate_.leave(); }
  InsideGate(const InsideGate&) = delete;
  InsideGate& operator=(const InsideGate&) = delete;

 private:
  PauseGate& gate_;
};

}  // namespace tenon::train
