// Texts between ranks: how saves are agreed and hashes are joined. Threads exchange them in memory, processes
// over the control plane.
#pragma once

#include <tenon/clock.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::train {

/// Collective over all ranks: each brings a text and gets all of them.
class TextExchange {
 public:
  virtual ~TextExchange() = default;
  /// Returns the texts of all ranks in rank order. Throws DeadlineError that names the late ranks,
  /// CancelledError after the run's first failure.
  virtual std::vector<std::string> exchange(int rank, const std::string& text) = 0;
  virtual void cancel(const std::string& reason) = 0;
};

/// Between threads. A round ends when the last rank has arrived; its texts stay readable until the next round
/// ends.
class StringAllGather final : public TextExchange {
 public:
  /// clock: the run's, for threads that take part in it; a wall clock of its own for others.
  StringAllGather(int ranks, Clock& clock, double deadline_s)
      : clock_(clock), deadline_s_(deadline_s), texts_(ranks), result_(ranks) {}

  std::vector<std::string> exchange(int rank, const std::string& text) override;
  void cancel(const std::string& reason) override;

 private:
  Clock& clock_;
  double deadline_s_;
  std::mutex mutex_;
  ClockEvent changed_;
  std::vector<std::string> texts_, result_;
  std::vector<bool> present_ = std::vector<bool>(texts_.size(), false);
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  bool cancelled_ = false;
  std::string reason_;
};

inline std::vector<std::string> StringAllGather::exchange(int rank, const std::string& text) {
  std::unique_lock lock(mutex_);
  if (cancelled_) throw CancelledError(reason_);
  const std::uint64_t round = round_;
  texts_[rank] = text;
  present_[rank] = true;
  if (++arrived_ == texts_.size()) {
    arrived_ = 0;
    present_.assign(present_.size(), false);
    result_ = texts_;
    ++round_;
    changed_.notify(clock_, clock_.now());
    return result_;
  }
  const WaitDeadline deadline(deadline_s_);
  while (round_ == round && !cancelled_) {
    if (changed_.wait(lock, clock_, deadline, "all ranks at a save") != ClockEvent::Outcome::kLate) continue;
    std::vector<std::size_t> late;
    for (std::size_t r = 0; r < present_.size(); ++r) {
      if (!present_[r]) late.push_back(r);
    }
    throw DeadlineError(
        fmt::format("rank(s) {} did not join a save within {} s", fmt::join(late, ", "), deadline_s_));
  }
  if (cancelled_) throw CancelledError(reason_);
  return result_;
}

inline void StringAllGather::cancel(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  reason_ = reason;
  changed_.notify(clock_, clock_.now());
}

}  // namespace tenon::train
