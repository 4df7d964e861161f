// Account of the time of a rank's training thread: one part at a time, so that the parts add up to the whole.
// Other threads of the rank (actors, further workers) go through the same code and change nothing.
#pragma once

#include <tenon/clock.hpp>
#include <tenon/runtime.hpp>

#include <array>
#include <string>
#include <thread>

namespace tenon::train {

enum class TimePart : std::uint8_t { kOther, kCompute, kExposed, kLate, kData, kEvaluate, kSave };
inline constexpr std::size_t kTimeParts = 7;

class TimeAccount {
 public:
  /// On the thread that it will follow.
  explicit TimeAccount(const Clock& clock) : clock_(clock), owner_(std::this_thread::get_id()) {}

  bool mine() const { return std::this_thread::get_id() == owner_; }
  /// From here on time counts, as kOther.
  void start();
  /// Time from now on belongs to `part`; returns what it belonged to. By the owner, after start().
  TimePart enter(TimePart part);
  /// A wait that has just been counted as kExposed was, for so long, for a rank that came late.
  void was_late(double seconds);
  bool running() const { return running_; }
  /// Up to now; `overlapped_s` and `purposes` are left empty.
  RankTime read();
  double seconds(TimePart part) const { return seconds_[static_cast<std::size_t>(part)]; }

 private:
  const Clock& clock_;
  const std::thread::id owner_;
  bool running_ = false;
  double since_ = 0, began_ = 0;
  TimePart part_ = TimePart::kOther;
  std::array<double, kTimeParts> seconds_{};
};

/// A part for a scope, on the owner's thread; elsewhere nothing.
class PartScope {
 public:
  PartScope(TimeAccount* account, TimePart part)
      : account_(account != nullptr && account->mine() && account->running() ? account : nullptr),
        before_(account_ != nullptr ? account_->enter(part) : TimePart::kOther) {}
  ~PartScope() {
    if (account_ != nullptr) account_->enter(before_);
  }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;
  bool counts() const { return account_ != nullptr; }

 private:
  TimeAccount* account_;
  TimePart before_;
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
