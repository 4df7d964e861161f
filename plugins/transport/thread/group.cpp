// Life cycle and failure of a group, and the dispatch of its requests (group.hpp).
#include "group.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace tenon::thread_transport {

namespace {

constexpr std::uint64_t kCollectiveBit = 1;
// More operations than a training step keeps in flight, so that pools grow at most in the first unusual
// steps.
constexpr std::size_t kFirstOperations = 16;
constexpr std::size_t kFirstMessagesPerMember = 4;

}  // namespace

Group::Group(std::shared_ptr<World> world, const GroupSpec& spec)
    : world_(std::move(world)),
      name_(spec.name),
      ranks_(spec.ranks.begin(), spec.ranks.end()),
      purpose_(spec.purpose),
      epoch_(spec.epoch),
      stream_(jitter_stream(spec.name, spec.ranks)),
      ends_(ranks_.size(), End::kNeverOpened),
      deadlines_(ranks_.size(), world_->spec().deadline_s),
      counts_(ranks_.size()),
      next_(ranks_.size(), 0),
      sends_(ranks_.size(), 0) {
  for (std::size_t i = 0; i < kFirstOperations; ++i) {
    operations_.push_back(std::make_unique<Operation>());
    operations_.back()->reset(0, {}, static_cast<int>(ranks_.size()));  // allocates its memory
    operations_.back()->open = false;
  }
  for (std::size_t i = 0; i < kFirstMessagesPerMember * ranks_.size(); ++i) {
    messages_.push_back(std::make_unique<Message>());
  }
}

Group::End Group::end_of(int member) const {
  const std::lock_guard lock(mutex_);
  return ends_[static_cast<std::size_t>(member)];
}

bool Group::all_closed() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(ends_.begin(), ends_.end(),
                     [](End end) { return end == End::kClosed || end == End::kAbandoned; });
}

void Group::open_end(int member, double deadline_s) {
  const std::lock_guard lock(mutex_);
  if (deadline_s > 0) deadlines_[static_cast<std::size_t>(member)] = deadline_s;
  ends_[static_cast<std::size_t>(member)] = End::kOpen;
}

bool Group::fail_if_gone(int member, std::string_view what) {
  const End end = ends_[static_cast<std::size_t>(member)];
  if (end != End::kClosed && end != End::kAbandoned) return false;
  fail(end == End::kAbandoned ? Failure::kCancelled : Failure::kError,
       fmt::format("rank {} closed '{}' {}", rank_of(member), name_, what));
  return true;
}

void Group::close_end(int member, bool abandoned) {
  Lock lock(mutex_);
  ends_[static_cast<std::size_t>(member)] = abandoned ? End::kAbandoned : End::kClosed;
  const auto mine = [&](const Operation& operation) {
    if (!operation.open) return false;
    const Part& part = operation.parts[static_cast<std::size_t>(member)];
    return part.joined && !part.finished;
  };
  const auto busy = [&] {
    return std::any_of(operations_.begin(), operations_.end(),
                       [&](const auto& operation) { return mine(*operation) && operation->running > 0; }) ||
           std::any_of(messages_.begin(), messages_.end(), [&](const auto& message) {
             return message->open && message->self() == member && message->copying;
           });
  };
  for (const auto& operation : operations_) {
    if (mine(*operation) && !operation->computed()) {
      fail_if_gone(member, fmt::format("with {} #{} in flight", kind_name(operation->signature.kind),
                                       operation->number));
    }
  }
  for (const auto& message : messages_) {
    if (message->open && message->self() == member && message->peer) {
      fail_if_gone(member, fmt::format("with {} in flight", message_text(*message)));
    }
  }
  // Another member may be inside a unit that accesses this member's buffers; a unit is a short piece of
  // arithmetic.
  while (busy()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
  for (const auto& operation : operations_) {
    if (mine(*operation)) finish_part(*operation, member);
  }
  for (const auto& message : messages_) {
    if (message->open && message->self() == member) message->open = false;
  }
  // Members that wait for this member's next operation learn that it will not come.
  for (const auto& operation : operations_) {
    if (operation->open) operation->changed.notify(world_->clock(), now());
  }
  for (const auto& message : messages_) {
    if (message->open) message->changed.notify(world_->clock(), now());
  }
}

bool Group::done(int member, Request request) {
  Lock lock(mutex_);
  const bool simulated = world_->clock().simulated();
  if ((request.id & kCollectiveBit) == 0) {
    Message& message = find_message(member, request);
    if (failed()) return true;
    if (!message.copied && (!message.peer || message.copying || now() < message.end)) return false;
    copy(lock, message);
    return failed() || (message.copied && now() >= message.end);
  }
  Operation& operation = find_operation(member, request);
  if (failed()) return true;
  if (!operation.sealed) return false;
  // One unit a call keeps a polling caller responsive, and completes the operation even if no member waits.
  if (!simulated) run_one_unit(lock, operation, member);
  if (now() < operation.end) return false;
  if (simulated) compute(lock, operation, member);
  return failed() || operation.computed();
}

void Group::wait(int member, Request request) {
  Lock lock(mutex_);
  if ((request.id & kCollectiveBit) == 0) {
    wait_message(lock, find_message(member, request));
  } else {
    wait_collective(lock, find_operation(member, request), member);
  }
}

LinkCounts Group::counts(int member) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<std::size_t>(member)];
}

void Group::cancel(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  fail(Failure::kCancelled, std::string(reason));
}

void Group::retire(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  fail(Failure::kError, std::string(reason));
}

void Group::throw_failure() const {
  switch (failure_) {
    case Failure::kCancelled:
      throw CancelledError(failure_text_);
    case Failure::kDeadline:
      throw DeadlineError(failure_text_);
    default:
      fail_run(failure_text_);
  }
}

void Group::fail(Failure kind, std::string text) {
  if (failed()) return;
  failure_ = kind;
  failure_text_ = std::move(text);
  for (const auto& operation : operations_) {
    if (operation->open) operation->changed.notify(world_->clock(), now());
  }
  for (const auto& message : messages_) {
    if (message->open) message->changed.notify(world_->clock(), now());
  }
}

void Group::count_started(int member, const Traffic& traffic) {
  LinkCounts& counts = counts_[static_cast<std::size_t>(member)];
  counts.bytes_sent += traffic.bytes;
  counts.messages_sent += traffic.messages;
  ++counts.operations;
  world_->count_started(rank_of(member), purpose_, traffic);
}

void Group::wait_for_link(Lock& lock, ClockEvent& changed, double end) {
  try {
    while (!failed() && now() < end) changed.wait_until(lock, world_->clock(), end);
  } catch (const DeadlineError& stopped) {
    fail(Failure::kDeadline, stopped.what());
  }
}

}  // namespace tenon::thread_transport
