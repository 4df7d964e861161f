// Account of the time of a rank's training thread: one phase at a time, so that phases add up to the whole,
// and those who listen hear each as it begins. Other threads of the rank (actors, further workers) go through
// the same code and change nothing.
#pragma once

#include <tenon/clock.hpp>
#include <tenon/phases.hpp>
#include <tenon/runtime.hpp>

#include <array>
#include <string>
#include <thread>
#include <vector>

namespace tenon::train {

class TimeAccount {
 public:
  /// On the thread that it will follow.
  explicit TimeAccount(const Clock& clock) : clock_(clock), owner_(std::this_thread::get_id()) {}

  bool mine() const { return std::this_thread::get_id() == owner_; }
  /// From here on time counts, as kIdle.
  void start();
  /// Time from now on belongs to `phase`; returns what it belonged to. By the owner, after start().
  Phase enter(Phase phase);
  /// Time that has just been counted as kCommunication was, for so long, a wait for a rank that came late.
  void was_late(double seconds);
  /// Tells `listener` kBegin and then every phase, until end(). It does not throw. By the owner.
  void listen(PhaseObserver& listener);
  /// Tells listeners kEnd, and nothing after it.
  void end();
  bool running() const { return running_; }
  /// Up to now; `overlapped_s` and `purposes` are left empty.
  RankTime read();
  /// ", after 12.3 s in phase 'communication'" where the thread has just been in one phase for a second or
  /// more, else "": a rank that is cut off says by it what it was waiting for.
  std::string stuck_text();
  double seconds(Phase phase) const { return seconds_[static_cast<std::size_t>(phase)]; }

 private:
  const Clock& clock_;
  const std::thread::id owner_;
  bool running_ = false;
  double since_ = 0, began_ = 0;
  Phase phase_ = Phase::kIdle;
  std::array<double, kPhases> seconds_{};
  /// The newest stay of kLongStay in one phase.
  Phase long_phase_ = Phase::kIdle;
  double long_stay_ = 0, long_until_ = 0;
  std::vector<PhaseObserver*> listeners_;
};

/// A phase for a scope, on the owner's thread; elsewhere nothing.
class PhaseScope {
 public:
  PhaseScope(TimeAccount* account, Phase phase)
      : account_(account != nullptr && account->mine() && account->running() ? account : nullptr),
        before_(account_ != nullptr ? account_->enter(phase) : Phase::kIdle) {}
  ~PhaseScope() {
    if (account_ != nullptr) account_->enter(before_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  bool counts() const { return account_ != nullptr; }

 private:
  TimeAccount* account_;
  Phase before_;
};

/// (communication - exposed) / communication over all ranks, where communication is what transfers took; NaN
/// where nothing was sent.
double hidden_share(const std::vector<RankTime>& ranks);

/// Names the rank for which the others waited more than a tenth of the run, and more than a second: "" where
/// there is none. A slow rank does not wait, so its own wait is compared with the median of the others'.
std::string slow_rank_text(const std::vector<RankTime>& ranks);

/// As one line of text between ranks, and back.
std::string rank_time_text(const RankTime& time);
RankTime read_rank_time(const std::string& text);

}  // namespace tenon::train
