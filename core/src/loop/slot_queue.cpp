#include "loop/slot_queue.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {

std::optional<SlotQueue::Ticket> SlotQueue::claim(Owner& owner) {
  std::unique_lock lock(mutex_);
  while (!done_ && progress_.boundary_done < progress_.next_slot) {
    if (acting_) {
      // Each wait of the worker that acts has a deadline of its own.
      quiet_.wait(lock, clock_, WaitDeadline(deadline_s_), "the worker at the slot boundary");
      continue;
    }
    acting_ = true;
    const auto acted = [&] {
      acting_ = false;
      notify();
    };
    try {
      pass_boundary(lock, owner);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      acted();
      throw;
    }
    acted();
  }
  if (done_) return std::nullopt;
  const Ticket ticket = owner.take(progress_.next_slot);
  ++progress_.next_slot;
  ++in_flight_;
  return ticket;
}

// The lock is not held while the owner acts: other workers may need it to see that they must wait.
void SlotQueue::pass_boundary(std::unique_lock<std::mutex>& lock, Owner& owner) {
  const std::int64_t slot = progress_.next_slot;
  Boundary due = owner.due(slot);
  const WaitDeadline deadline(deadline_s_);
  while (due.quiet() && in_flight_ > 0) {
    if (quiet_.wait(lock, clock_, deadline, "the other workers at a slot boundary") ==
        ClockEvent::Outcome::kLate) {
      throw DeadlineError(
          fmt::format("{} worker(s) did not end their slot within {} s", in_flight_, deadline_s_));
    }
  }
  if (due.quiet()) {
    lock.unlock();
    owner.act(due);
    lock.lock();
  }
  progress_.boundary_done = slot;
  done_ = owner.ends(due);
}

void SlotQueue::leave() {
  const std::lock_guard lock(mutex_);
  --in_flight_;
  notify();
}

void SlotQueue::end_worker() {
  const std::lock_guard lock(mutex_);
  ++ended_;
  notify();
}

void SlotQueue::await_ended(std::size_t workers) {
  std::unique_lock lock(mutex_);
  const WaitDeadline deadline(deadline_s_);
  while (ended_ < workers) {
    if (quiet_.wait(lock, clock_, deadline, "the other workers to end") == ClockEvent::Outcome::kLate) break;
  }
}

}  // namespace tenon::train
