// Collectives of a group: numbering, agreement, waiting for members, computing, ending (group.hpp).
#include "group.hpp"

#include <tenon/transport.hpp>

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

namespace tenon::thread_transport {

Request Group::start(int member, const Signature& signature, const Buffers& buffers) {
  Lock lock(mutex_);
  if (failed()) throw_failure();
  const std::uint64_t number = next_[static_cast<std::size_t>(member)]++;
  Operation& operation = operation_at(number);
  if (operation.joined == 0) {
    operation.reset(number, signature, size());
  } else {
    check_agreement(operation, member, signature);
  }
  Part& part = operation.parts[static_cast<std::size_t>(member)];
  part.joined = true;
  part.data = buffers.data;
  part.receive = buffers.receive;
  part.send_counts.assign(buffers.send_counts.begin(), buffers.send_counts.end());
  part.receive_counts.assign(buffers.receive_counts.begin(), buffers.receive_counts.end());
  ++operation.joined;
  if (world_->clock().simulated()) check_virtual_deadline(operation, member);
  count_started(member, traffic_of(signature, part, member, size()));
  if (operation.joined == size()) seal(operation);
  return {number << 1 | 1};
}

// Returns the slot of operation `number`, initialised (joined == 0) if this is its first member.
Operation& Group::operation_at(std::uint64_t number) {
  while (true) {
    Operation& operation = *operations_[number % operations_.size()];
    if (operation.open && operation.number == number) return operation;
    if (!operation.open) {
      operation.joined = 0;
      return operation;
    }
    std::vector<std::unique_ptr<Operation>> larger(2 * operations_.size());
    for (auto& old : operations_) {
      if (old->open) larger[old->number % larger.size()] = std::move(old);
    }
    for (auto& slot : larger) {
      if (!slot) slot = std::make_unique<Operation>();
    }
    operations_ = std::move(larger);
  }
}

Operation& Group::find_operation(int member, Request request) {
  const std::uint64_t number = request.id >> 1;
  Operation& operation = *operations_[number % operations_.size()];
  if (operation.open && operation.number == number) {
    const Part& part = operation.parts[static_cast<std::size_t>(member)];
    if (part.joined && !part.finished) return operation;
  }
  fail_run(fmt::format("rank {} waits twice for a request of '{}', or for one that '{}' did not give",
                       rank_of(member), name_, name_));
}

void Group::check_agreement(const Operation& operation, int member, const Signature& signature) {
  if (operation.signature == signature) return;
  const auto first =
      std::find_if(operation.parts.begin(), operation.parts.end(), [](const Part& p) { return p.joined; });
  fail(Failure::kError,
       fmt::format(
           "operation #{} of '{}': rank {} started {}, but rank {} started {}; all members start the same "
           "operations in the same order",
           operation.number, name_, rank_of(static_cast<int>(first - operation.parts.begin())),
           signature_text(operation.signature), rank_of(member), signature_text(signature)));
  throw_failure();
}

// On a wall clock the others would have timed out by now; parked, they could not.
void Group::check_virtual_deadline(const Operation& operation, int member) {
  for (const Part& part : operation.parts) {
    const double waited = now() - part.wait_begin;
    if (!part.waiting || waited <= deadline_s()) continue;
    fail(Failure::kDeadline,
         fmt::format("{} did not join {} #{} of '{}' within {:g} s; it came after {:g} virtual seconds",
                     ranks_text({rank_of(member)}), kind_name(operation.signature.kind), operation.number,
                     name_, deadline_s(), waited));
    throw_failure();
  }
}

// Called when the last member has joined.
void Group::seal(Operation& operation) {
  const double joined_at = now();
  if (const std::string mismatch = count_mismatch(operation, ranks_); !mismatch.empty()) {
    fail(Failure::kError, fmt::format("all_to_all #{} of '{}': {}", operation.number, name_, mismatch));
    throw_failure();
  }
  operation.units = unit_count(operation);
  const WorldSpec& spec = world_->spec();
  const LinkTime time = time_of(operation, world_->link_of(ranks_));
  const double begin = world_->reserve_links(ranks_, std::max(joined_at, last_end_), time.transfer_s);
  const double jitter = size() > 1 ? link_jitter(spec.link, spec.seed, stream_, operation.number) : 0;
  operation.joined_at = joined_at;
  operation.link_s = time.transfer_s + time.latency_s + jitter;
  operation.end = begin + time.transfer_s + time.latency_s + jitter;
  last_end_ = operation.end;
  operation.sealed = true;
  operation.changed.notify(world_->clock(), operation.end);
}

void Group::wait_for_members(Lock& lock, Operation& operation, int member) {
  Part& part = operation.parts[static_cast<std::size_t>(member)];
  part.waiting = true;
  part.wait_begin = now();
  const WaitDeadline deadline(deadline_s());
  char waiting_for[160];
  *fmt::format_to_n(waiting_for, sizeof waiting_for - 1, "all members of {} #{} of '{}'",
                    kind_name(operation.signature.kind), operation.number, name_)
       .out = '\0';
  while (!failed() && !operation.sealed) {
    for (int late = 0; late < size(); ++late) {
      if (operation.parts[static_cast<std::size_t>(late)].joined) continue;
      if (ends_[static_cast<std::size_t>(late)] <= End::kOpen) continue;
      fail_if_gone(
          late, fmt::format("without joining {} #{}", kind_name(operation.signature.kind), operation.number));
    }
    if (failed()) break;
    std::string why;
    const auto outcome = operation.changed.wait(lock, world_->clock(), deadline, waiting_for, &why);
    if (outcome == ClockEvent::Outcome::kLate && !failed() && !operation.sealed) {
      fail(Failure::kDeadline, late_text(operation, why));
    }
  }
  part.waiting = false;
}

bool Group::run_one_unit(Lock& lock, Operation& operation, int member) {
  if (failed() || operation.next_unit >= operation.units) return false;
  const std::int64_t unit = operation.next_unit++;
  ++operation.running;
  lock.unlock();
  run_unit(operation, unit, member);
  lock.lock();
  --operation.running;
  ++operation.units_done;
  if (operation.computed()) operation.changed.notify(world_->clock(), now());
  return true;
}

void Group::compute(Lock& lock, Operation& operation, int member) {
  while (run_one_unit(lock, operation, member)) {
  }
  // Other members are inside the last units, which are short; the deadline guards against a stopped thread.
  const WaitDeadline deadline(deadline_s());
  while (!failed() && !operation.computed()) {
    const auto outcome =
        operation.changed.wait(lock, world_->clock(), deadline, "the last units of an operation");
    if (outcome == ClockEvent::Outcome::kLate && !failed() && !operation.computed()) {
      fail(Failure::kDeadline,
           fmt::format("{} #{} of '{}' was not computed within {:g} s: a thread of this process does not run",
                       kind_name(operation.signature.kind), operation.number, name_, deadline_s()));
    }
  }
}

void Group::wait_collective(Lock& lock, Operation& operation, int member) {
  const double begin = now();
  try {
    wait_for_members(lock, operation, member);
    if (operation.sealed) {
      compute(lock, operation, member);
      if (operation.computed()) wait_for_link(lock, operation.changed, operation.end);
    }
  } catch (...) {
    finish_part(operation, member);
    throw;
  }
  const bool success = operation.computed() && (!failed() || now() >= operation.end);
  // The caller may free its buffers after a failure: no member may still be inside a unit.
  while (!success && operation.running > 0) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
  if (success) count_wait(member, begin, operation.joined_at, operation.link_s, operation.end);
  finish_part(operation, member);
  if (!success) throw_failure();
}

// Until the last member has joined, a wait is for a rank; from then on it is for bytes. Computing time beyond
// the link's own time counts as transfer too, since computing moves the bytes here.
void Group::count_wait(int member, double begin, double ready_at, double link_s, double link_end) {
  const double end = now();
  const double ready = std::clamp(ready_at, begin, end);
  const double exposed = end - ready;
  const double transfer = std::max(exposed, link_s + std::max(0.0, end - std::max(link_end, ready)));
  const Waited waited{end - begin, ready - begin, transfer};
  LinkCounts& counts = counts_[static_cast<std::size_t>(member)];
  counts.blocked_seconds += waited.blocked;
  counts.late_seconds += waited.late;
  counts.transfer_seconds += waited.transfer;
  world_->count_waited(rank_of(member), purpose_, waited);
}

void Group::finish_part(Operation& operation, int member) {
  Part& part = operation.parts[static_cast<std::size_t>(member)];
  part.finished = true;
  part.waiting = false;
  if (++operation.finished == size()) operation.open = false;
}

std::vector<int> Group::missing(const Operation& operation) const {
  std::vector<int> members;
  for (int member = 0; member < size(); ++member) {
    if (!operation.parts[static_cast<std::size_t>(member)].joined) members.push_back(member);
  }
  return members;
}

std::string Group::late_text(const Operation& operation, const std::string& why) const {
  std::vector<int> late;
  for (const int member : missing(operation)) late.push_back(rank_of(member));
  const std::string what =
      fmt::format("{} #{} of '{}'", kind_name(operation.signature.kind), operation.number, name_);
  std::string text =
      why.empty() ? fmt::format("{} did not join {} within {:g} s", ranks_text(late), what, deadline_s())
                  : fmt::format("{} will never join {}", ranks_text(late), what);
  for (const int member : missing(operation)) {
    fmt::format_to(std::back_inserter(text), "; rank {} has started {} operations of '{}'", rank_of(member),
                   next_[static_cast<std::size_t>(member)], name_);
  }
  text += why.empty() ? "; see its log, or raise [run] deadline if it is only slow" : "; " + why;
  return text;
}

}  // namespace tenon::thread_transport
