// The in-process control plane (control_inprocess.hpp).
#include "control/control_inprocess.hpp"

#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <iterator>
#include <utility>

TENON_ABI_BEGIN

InprocessControl::InprocessControl(int ranks, double deadline_s, Clock& clock, int voters)
    : deadline_s_(deadline_s), clock_(clock), state_(ranks, voters), heard_(ranks, clock.now()) {
  if (!(deadline_s > 0)) {
    fail_config(fmt::format("control plane: deadline is {} s, expected more than 0", deadline_s));
  }
}

int InprocessControl::on_failure(std::function<void(const std::string&)> callback) {
  return callbacks_.add(std::move(callback), [this] { return failure(); });
}

void InprocessControl::forget(int id) {
  callbacks_.forget(id);
}

std::uint32_t InprocessControl::begin_slot(int rank, std::int64_t slot) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  const std::uint32_t actions = state_.begin_slot(rank, slot);
  heard_from(rank);
  count(2);
  return actions;
}

std::int64_t InprocessControl::request(std::uint32_t actions, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  count(2, reason.size());
  return state_.request(actions);
}

bool InprocessControl::commit(int rank, std::int64_t slot, bool yes) {
  using Verdict = ControlState::Verdict;
  std::unique_lock lock(mutex_);
  throw_if_failed();
  state_.vote(rank, slot, yes);
  heard_from(rank);
  count(2);
  if (state_.verdict(slot) != Verdict::kPending) changed_.notify(clock_, clock_.now());

  const WaitDeadline deadline(deadline_s_);
  char waiting_for[64];
  *fmt::format_to_n(waiting_for, sizeof waiting_for - 1, "the votes on slot {}", slot).out = '\0';
  while (true) {
    throw_if_failed();
    const Verdict verdict = state_.collect(rank, slot);
    if (verdict == Verdict::kYes || verdict == Verdict::kNo) return verdict == Verdict::kYes;
    if (verdict == Verdict::kAbandoned) throw DeadlineError(state_.abandoned_because(slot));
    std::string why;
    const auto outcome = changed_.wait(lock, clock_, deadline, waiting_for, &why);
    if (outcome == ClockEvent::Outcome::kLate && state_.verdict(slot) == Verdict::kPending) {
      state_.abandon(slot, late_text(slot, why));
      changed_.notify(clock_, clock_.now());
    }
  }
}

void InprocessControl::fail(int rank, int exit_status, std::string_view message) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (!state_.fail(rank, exit_status, message)) return;
    text = state_.failure();
    for (std::size_t i = 0; i < heard_.size(); ++i) count(1, text.size());
    changed_.notify(clock_, clock_.now());
  }
  callbacks_.call(text);
}

bool InprocessControl::failed() const {
  const std::lock_guard lock(mutex_);
  return state_.failed();
}

std::string InprocessControl::failure() const {
  const std::lock_guard lock(mutex_);
  return state_.failure();
}

int InprocessControl::failure_status() const {
  const std::lock_guard lock(mutex_);
  return state_.failure_status();
}

std::uint64_t InprocessControl::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void InprocessControl::throw_if_failed() const {
  if (state_.failed()) throw CancelledError(state_.failure());
}

void InprocessControl::heard_from(int rank) {
  heard_[rank] = clock_.now();
}

void InprocessControl::count(std::uint64_t records, std::size_t text_bytes) {
  bytes_ += records * kControlRecordBytes + text_bytes;
}

std::string InprocessControl::late_text(std::int64_t slot, const std::string& why) const {
  const std::vector<int> late = state_.missing_votes(slot);
  std::string text = why.empty() ? fmt::format("{} did not vote on slot {} within {:g} s", ranks_text(late),
                                               slot, deadline_s_)
                                 : fmt::format("{} will never vote on slot {}", ranks_text(late), slot);
  for (const int rank : late) {
    fmt::format_to(std::back_inserter(text), "; rank {} was last heard of {:.1f} s ago", rank,
                   clock_.now() - heard_[rank]);
  }
  if (!why.empty()) text += "; " + why;
  return text;
}

std::unique_ptr<InprocessControl> make_inprocess_control(int ranks, double deadline_s, Clock& clock,
                                                         int voters) {
  return std::make_unique<InprocessControl>(ranks, deadline_s, clock, voters);
}

std::unique_ptr<ControlPlane> make_thread_control(int ranks, double deadline_s, Clock& clock) {
  return make_inprocess_control(ranks, deadline_s, clock);
}

TENON_ABI_END
