// Waiting and ending (group.hpp). NCCL reports neither late ranks nor the state of others, so a long wait
// asks their boards for members that are gone, have cancelled, have closed, or have started something else.
#include "group.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

namespace tenon::nccl_transport {
namespace {

constexpr double kFirstLook = 0.2, kNextLook = 1, kLookSeconds = 1;
/// Number of members asked at once, unless the deadline has passed.
constexpr std::size_t kAsked = 8;
/// Limit for a device to release the memory of aborted operations.
constexpr double kDrainSeconds = 10;

Time after(Time time, double seconds) {
  constexpr double kYear = 3.2e7;
  return time + std::chrono::duration_cast<Time::duration>(
                    std::chrono::duration<double>(std::clamp(seconds, 0.0, kYear)));
}

double seconds_since(Time begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Returns whether this is a message held back for more messages.
bool holds_messages(const Operation& operation) {
  return operation.state == Operation::State::kQueued && is_message(operation.signature.kind);
}

/// Long waits yield the processor.
void pause(Time begin) {
  const double waited = seconds_since(begin);
  if (waited < 50e-6) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(waited < 2e-3 ? 20 : 200));
}

}  // namespace

void Group::fail(const Failure& failure) {
  ended_ = true;
  if (failure_) return;
  failure_ = failure;
  const std::lock_guard words(words_.mutex);
  words_.failure = failure.words();
}

std::string Group::described(const Operation& operation) const {
  const std::string what = signature_text(operation.signature);
  return is_message(operation.signature.kind) ? fmt::format("{} of '{}'", what, name_)
                                              : fmt::format("{} #{} of '{}'", what, operation.number, name_);
}

bool Group::done(Request request) {
  std::unique_lock lock(mutex_);
  const Operation* const operation = find(request.id);
  flush_ = operation != nullptr && holds_messages(*operation);
  pump();
  flush_ = false;
  return operation == nullptr || failure_ || operation->state == Operation::State::kFinished;
}

void Group::wait(Request request) {
  const Time begin = std::chrono::steady_clock::now();
  const Time limit = after(begin, deadline_s_);
  Time look = after(begin, kFirstLook);
  std::unique_lock lock(mutex_);
  Operation* const operation = find(request.id);
  if (operation == nullptr || request.id == 0) {
    fail_run(
        fmt::format("transport.nccl: rank {} waits twice for a request of '{}', or for one that '{}' did "
                    "not give",
                    session_->rank(), name_, name_));
  }
  while (true) {
    flush_ = holds_messages(*operation);
    pump();
    flush_ = false;
    if (failure_ || operation->state == Operation::State::kFinished) break;
    lock.unlock();
    pause(begin);
    const Time now = std::chrono::steady_clock::now();
    if (now >= look || now >= limit) {
      const Failure found = look_around(*operation, now >= limit);
      if (found && found.all) {
        const std::lock_guard again(mutex_);
        if (operation->state != Operation::State::kFinished) {
          fail(found);
          ended_ = false;
        }
      } else if (found) {
        session_->break_one(*this, found);
      }
      look = after(now, kNextLook);
    }
    if (seconds_since(begin) > 1e-3) session_->help_others(this);
    lock.lock();
  }
  if (failure_ && !ended_) {
    const Failure failure = failure_;
    lock.unlock();
    session_->break_all(failure, epoch_);
    lock.lock();
  }
  const double waited = seconds_since(begin);
  add_counts({.blocked_seconds = waited});
  // An operation that the device has finished succeeds, even if a later one failed.
  if (operation->state == Operation::State::kFinished) {
    copy_back(*operation);
    drop(*operation);
    return;
  }
  const Failure failure = failure_;
  drain(*operation);
  drop(*operation);
  lock.unlock();
  failure.raise();
}

Failure Group::look_around(const Operation& operation, bool at_deadline) {
  const bool message = is_message(operation.signature.kind);
  const std::string mine = signature_text(operation.signature);
  std::vector<int> late, asked;
  const std::size_t members = ranks_.size(), count = at_deadline ? members : std::min(members, kAsked);
  for (std::size_t i = 0; i < count; ++i) {
    const auto other = static_cast<int>(next_asked_++ % members);
    if (message && other != operation.signature.root && !at_deadline) continue;
    if (other != member_) asked.push_back(other);
  }
  for (const int other : asked) {
    const int rank = rank_of(other);
    const Answer answer = session_->ask(
        rank, fmt::format("at {} {}", key_, message ? started_ : operation.number), kLookSeconds);
    const std::string_view text = answer.text;
    if (!answer.reached) {
      if (text == "Connection refused" || text == "Connection reset by peer") {
        return {Failure::Kind::kError,
                fmt::format("transport.nccl: rank {} is gone: nothing answers at its port ({}), during {}",
                            rank, text, described(operation))};
      }
      late.push_back(rank);
    } else if (text.substr(0, 10) == "cancelled ") {
      return {Failure::Kind::kCancelled, std::string(text.substr(10)), false};
    } else if (text.substr(0, 7) == "failed ") {
      return {Failure::Kind::kCancelled, std::string(text.substr(7))};
    } else if (text == "unknown") {
      late.push_back(rank);
    } else {
      std::uint64_t started = 0;
      std::size_t at = text.find(' ') + 1;
      for (; at < text.size() && text[at] != '|'; ++at)
        started = 10 * started + static_cast<std::uint64_t>(text[at] - '0');
      const std::string_view theirs = text.substr(std::min(at + 1, text.size()));
      const bool joined = started > operation.number;
      if (message) continue;
      if (!joined && text.substr(0, 6) == "closed") {
        return {Failure::Kind::kError, fmt::format("transport.nccl: rank {} closed '{}' without joining {}",
                                                   rank, name_, described(operation))};
      }
      if (!joined) late.push_back(rank);
      if (joined && !theirs.empty() && theirs != mine) {
        return {Failure::Kind::kError,
                fmt::format(
                    "transport.nccl: members disagree on operation #{} of '{}': rank {} started {}, rank {} "
                    "started {}",
                    operation.number, name_, session_->rank(), mine, rank, theirs)};
      }
    }
  }
  if (!at_deadline) return {};
  std::string text;
  if (!late.empty()) {
    text =
        fmt::format("{} did not join {} within {:g} s", ranks_text(late), described(operation), deadline_s_);
  } else if (message) {
    text = fmt::format("{} did not end within {:g} s: rank {} has not started its end, or NCCL is stuck",
                       described(operation), deadline_s_, rank_of(operation.signature.root));
  } else {
    text = fmt::format(
        "{} did not end within {:g} s, though all ranks joined it: NCCL is stuck, which "
        "NCCL_DEBUG=INFO tells more of",
        described(operation), deadline_s_);
  }
  return {Failure::Kind::kDeadline, text + "; see its log, or raise [run] deadline if it is rightly slow"};
}

// The caller may free its memory once a wait has ended, also after a failure.
void Group::drain(Operation& operation) {
  if (operation.state != Operation::State::kGiven && operation.state != Operation::State::kInStream) return;
  const Time limit = after(std::chrono::steady_clock::now(), std::min(kDrainSeconds, deadline_s_));
  const Time begin = std::chrono::steady_clock::now();
  try {
    session_->events().record(operation.done, stream_);
    while (!session_->events().reached(operation.done) && std::chrono::steady_clock::now() < limit)
      pause(begin);
  } catch (const Error&) {
    // A lost device no longer accesses memory.
  }
}

void Group::copy_back(Operation& operation) {
  Device& device = *session_->device();
  const Signature& s = operation.signature;
  const auto copy = [&](const TensorView& to, int buffer) {
    TensorView from = to;
    from.data = buffers_[static_cast<std::size_t>(buffer)].memory;
    from.space = MemorySpace::kCuda;
    const bool row = s.kind == Kind::kReduceScatter;
    device.copy(row ? from.rows(member_, member_ + 1) : from, row ? to.rows(member_, member_ + 1) : to);
  };
  if (operation.receive_buffer >= 0) copy(operation.receive, operation.receive_buffer);
  if (operation.buffer < 0 || s.kind == Kind::kSend || s.kind == Kind::kAllToAll) return;
  if (s.kind == Kind::kBroadcast && s.root == member_) return;
  if (s.kind == Kind::kReduce && s.root != member_) return;
  copy(operation.data, operation.buffer);
}

void Group::add_counts(const LinkCounts& more) {
  {
    const std::lock_guard lock(counts_mutex_);
    add(counts_, more);
  }
  session_->count(purpose_, more);
}

LinkCounts Group::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

void Group::cancel(std::string_view reason) {
  session_->break_one(*this, {Failure::Kind::kCancelled, std::string(reason)});
}

void Group::close(bool abandoned) {
  std::unique_lock lock(mutex_);
  std::string left;
  for (const auto& operation : operations_) {
    if (operation->state != Operation::State::kFree && operation->state != Operation::State::kFinished)
      left = described(*operation) + " in flight";
  }
  if (!failure_ && (abandoned || !left.empty())) {
    const Failure why{Failure::Kind::kCancelled, fmt::format("rank {} closed '{}' with {}", session_->rank(),
                                                             name_, left.empty() ? "an exception" : left)};
    lock.unlock();
    session_->break_one(*this, why);
    lock.lock();
  }
  const bool failed = static_cast<bool>(failure_);
  for (const auto& operation : operations_) drain(*operation);
  const std::string words = failed ? failure_.words() : fmt::format("closed {}|", started_);
  Comm comm = std::exchange(comm_, nullptr);
  const bool kept = failed && state_ == State::kReady;
  const int finalized =
      comm != nullptr && !failed && state_ == State::kReady ? api().CommFinalize(comm) : kInvalidUsage;
  const bool finalizes = finalized == kSuccess || finalized == kInProgress;
  state_ = State::kGone;
  // The session's lock comes before this group's.
  lock.unlock();
  if (comm != nullptr && (finalizes || kept))
    session_->park({name_, epoch_, ranks_, std::exchange(comm, nullptr), finalizes});
  session_->leave(*this, words);
  if (comm != nullptr) session_->abort(comm);
  if (parent_.comm != nullptr) session_->abort(std::exchange(parent_.comm, nullptr));
  release_memory();
}

void Group::release_memory() {
  Device* const device = session_->device();
  for (Buffer& some : buffers_) {
    if (some.memory != nullptr) device->release(some.memory, some.bytes);
  }
  buffers_.clear();
  if (barrier_memory_ != nullptr)
    device->release(std::exchange(barrier_memory_, nullptr), sizeof(std::int32_t));
  for (const auto& operation : operations_) {
    session_->events().release_event(operation->ready);
    session_->events().release_event(operation->done);
  }
  operations_.clear();
  if (stream_ != nullptr) session_->streams().release_stream(std::exchange(stream_, nullptr));
}

}  // namespace tenon::nccl_transport
