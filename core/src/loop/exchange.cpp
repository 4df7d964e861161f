// A round ends when the last rank has arrived; its texts stay readable until the next round ends.
#include "loop/exchange.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {

TextExchange::~TextExchange() = default;

std::vector<std::string> StringAllGather::exchange(int rank, const std::string& text) {
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

void StringAllGather::cancel(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  reason_ = reason;
  changed_.notify(clock_, clock_.now());
}

}  // namespace tenon::train
