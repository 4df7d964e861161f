// A group (group.hpp): its life cycle and failure and the dispatch of its requests; its collectives; its
// messages.
#include "group.hpp"

#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>

namespace tenon::thread_transport {

namespace {

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
  return ends_[member];
}

bool Group::all_closed() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(ends_.begin(), ends_.end(),
                     [](End end) { return end == End::kClosed || end == End::kAbandoned; });
}

void Group::open_end(int member, double deadline_s) {
  const std::lock_guard lock(mutex_);
  if (deadline_s > 0) deadlines_[member] = deadline_s;
  ends_[member] = End::kOpen;
}

bool Group::fail_if_gone(int member, std::string_view what) {
  const End end = ends_[member];
  if (end != End::kClosed && end != End::kAbandoned) return false;
  fail(end == End::kAbandoned ? Failure::kCancelled : Failure::kError,
       fmt::format("rank {} closed '{}' {}", rank_of(member), name_, what));
  return true;
}

void Group::close_end(int member, bool abandoned) {
  Lock lock(mutex_);
  ends_[member] = abandoned ? End::kAbandoned : End::kClosed;
  const auto mine = [&](const Operation& operation) {
    if (!operation.open) return false;
    const Part& part = operation.parts[member];
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
  if (!transport_common::is_collective(request)) {
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
  if (!transport_common::is_collective(request)) {
    wait_message(lock, find_message(member, request));
  } else {
    wait_collective(lock, find_operation(member, request), member);
  }
}

LinkCounts Group::counts(int member) const {
  const std::lock_guard lock(mutex_);
  return counts_[member];
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
  LinkCounts& counts = counts_[member];
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

// Collectives: numbering, agreement, waiting for members, computing, ending.

Request Group::start(int member, const Signature& signature, const Buffers& buffers) {
  Lock lock(mutex_);
  if (failed()) throw_failure();
  const std::uint64_t number = next_[member]++;
  Operation& operation = transport_common::operation_slot(operations_, number);
  if (operation.open) {
    check_agreement(operation, member, signature);
  } else {
    operation.reset(number, signature, size());  // the first member is here
  }
  Part& part = operation.parts[member];
  part.joined = true;
  part.data = buffers.data;
  part.receive = buffers.receive;
  part.send_counts.assign(buffers.send_counts.begin(), buffers.send_counts.end());
  part.receive_counts.assign(buffers.receive_counts.begin(), buffers.receive_counts.end());
  ++operation.joined;
  if (world_->clock().simulated()) check_virtual_deadline(operation, member);
  count_started(member, traffic_of(signature, part, member, size()));
  if (operation.joined == size()) seal(operation);
  return transport_common::collective_request(number);
}

Operation& Group::find_operation(int member, Request request) {
  if (Operation* operation = transport_common::find_operation(operations_, request)) {
    const Part& part = operation->parts[member];
    if (part.joined && !part.finished) return *operation;
  }
  transport_common::refuse_request(rank_of(member), name_);
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
  Part& part = operation.parts[member];
  part.waiting = true;
  part.wait_begin = now();
  const WaitDeadline deadline(deadline_s());
  char waiting_for[160];
  *fmt::format_to_n(waiting_for, sizeof waiting_for - 1, "all members of {} #{} of '{}'",
                    kind_name(operation.signature.kind), operation.number, name_)
       .out = '\0';
  while (!failed() && !operation.sealed) {
    for (int late = 0; late < size(); ++late) {
      if (operation.parts[late].joined) continue;
      if (ends_[late] <= End::kOpen) continue;
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
  LinkCounts& counts = counts_[member];
  counts.blocked_seconds += waited.blocked;
  counts.late_seconds += waited.late;
  counts.transfer_seconds += waited.transfer;
  world_->count_waited(rank_of(member), purpose_, waited);
}

void Group::finish_part(Operation& operation, int member) {
  Part& part = operation.parts[member];
  part.finished = true;
  part.waiting = false;
  if (++operation.finished == size()) operation.open = false;
}

std::vector<int> Group::missing(const Operation& operation) const {
  std::vector<int> members;
  for (int member = 0; member < size(); ++member) {
    if (!operation.parts[member].joined) members.push_back(member);
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
                   next_[member], name_);
  }
  text += why.empty() ? "; see its log, or raise [run] deadline if it is only slow" : "; " + why;
  return text;
}

// Point-to-point transfers of a group (group.hpp). A send and a receive are matched by (from, to, tag) in
// starting order; then the end that waits first copies, straight from buffer to buffer. A send therefore ends
// only once its receive was started.

Request Group::start_message(int member, bool is_send, TensorView data, int other, int tag) {
  const Lock lock(mutex_);
  if (failed()) throw_failure();
  std::size_t index = 0;
  Message& message = transport_common::free_message(messages_, name_, index);
  message.open = true;
  message.is_send = is_send;
  message.from = is_send ? member : other;
  message.to = is_send ? other : member;
  message.tag = tag;
  message.serial = next_serial_++;
  message.data = data;
  message.peer = nullptr;
  message.copying = message.copied = message.waiting = false;
  message.matched = message.link_s = message.end = 0;

  Traffic traffic;
  if (is_send) {
    const bool travels = other != member;
    if (travels) traffic = {static_cast<std::uint64_t>(data.bytes()), 1};
    const WorldSpec& spec = world_->spec();
    const int rank = rank_of(member);
    const LinkSpec link = world_->link_of(std::array{rank, rank_of(other)});
    const double transfer = travels ? link_seconds(link, static_cast<double>(data.bytes())) : 0;
    message.link_s = transfer;
    message.leaves = world_->reserve_links({&rank, 1}, now(), transfer) + transfer;
    message.arrives = message.leaves;
    const std::uint64_t number = sends_[member]++;
    if (travels) {
      // The sender's own count numbers the draw, so it is independent of other threads.
      message.arrives +=
          spec.link.latency_s +
          link_jitter(spec.link, spec.seed, stream_ + 1 + static_cast<std::uint64_t>(rank), number);
    }
  }
  count_started(member, traffic);

  Message* partner = nullptr;
  for (const auto& candidate : messages_) {
    const bool fits = candidate->open && candidate->is_send != is_send && !candidate->peer &&
                      !candidate->copied && candidate->from == message.from && candidate->to == message.to &&
                      candidate->tag == tag;
    if (fits && (!partner || candidate->serial < partner->serial)) partner = candidate.get();
  }
  if (partner) is_send ? match(message, *partner) : match(*partner, message);
  return transport_common::message_request(message.serial, index);
}

Message& Group::find_message(int member, Request request) {
  Message* message = transport_common::find_message(messages_, request);
  if (message == nullptr || message->self() != member)
    transport_common::refuse_request(rank_of(member), name_);
  return *message;
}

void Group::match(Message& send, Message& receive) {
  const auto text = [](const TensorView& view) {
    return fmt::format("{} {}", dtype_name(view.dtype), view.shape.text());
  };
  if (send.data.dtype != receive.data.dtype || !(send.data.shape == receive.data.shape)) {
    fail(Failure::kError,
         fmt::format("message of '{}' with tag {}: rank {} sends {}, but rank {} expects {}", name_, send.tag,
                     rank_of(send.from), text(send.data), rank_of(send.to), text(receive.data)));
    throw_failure();
  }
  const double matched = now();
  for (const Message* end : {&send, &receive}) {
    if (!end->waiting || !world_->clock().simulated() || matched - end->wait_begin <= deadline_s(end->self()))
      continue;
    fail(Failure::kDeadline,
         fmt::format("{} did not start {} within {:g} s; it came after {:g} virtual seconds",
                     ranks_text({rank_of(end->other())}), message_text(*end), deadline_s(end->self()),
                     matched - end->wait_begin));
    throw_failure();
  }
  send.peer = &receive;
  receive.peer = &send;
  send.matched = receive.matched = matched;
  receive.link_s = send.link_s + send.arrives - send.leaves;
  send.end = std::max(send.leaves, matched);
  receive.end = std::max(send.arrives, matched);
  send.changed.notify(world_->clock(), send.end);
  receive.changed.notify(world_->clock(), receive.end);
}

std::string Group::message_text(const Message& message) const {
  return fmt::format("the message of '{}' from rank {} to rank {} with tag {}", name_, rank_of(message.from),
                     rank_of(message.to), message.tag);
}

void Group::wait_for_match(Lock& lock, Message& message) {
  message.waiting = true;
  message.wait_begin = now();
  const double patience = deadline_s(message.self());
  const WaitDeadline deadline(patience);
  char waiting_for[160];
  *fmt::format_to_n(waiting_for, sizeof waiting_for - 1, "rank {} to {} with tag {} in '{}'",
                    rank_of(message.other()), message.is_send ? "receive" : "send", message.tag, name_)
       .out = '\0';
  while (!failed() && !message.peer && !message.copied) {
    const int other = message.other();
    if (ends_[other] > End::kOpen) {
      fail_if_gone(other, fmt::format("without starting {}", message_text(message)));
      break;
    }
    std::string why;
    const auto outcome = message.changed.wait(lock, world_->clock(), deadline, waiting_for, &why);
    if (outcome != ClockEvent::Outcome::kLate || failed() || message.peer || message.copied) continue;
    fail(Failure::kDeadline,
         why.empty() ? fmt::format("{} did not start {} within {:g} s; see its log, or raise [run] deadline "
                                   "if it is only slow",
                                   ranks_text({rank_of(other)}), message_text(message), patience)
                     : fmt::format("{} will never start {}; {}", ranks_text({rank_of(other)}),
                                   message_text(message), why));
  }
  message.waiting = false;
}

void Group::copy(Lock& lock, Message& message) {
  const WaitDeadline deadline(deadline_s());
  while (!failed() && !message.copied) {
    if (message.copying) {  // the peer is copying
      const auto outcome = message.changed.wait(lock, world_->clock(), deadline, "the end of a copy");
      if (outcome == ClockEvent::Outcome::kLate && message.copying) {
        fail(Failure::kDeadline,
             fmt::format("{} was not copied within {:g} s: a thread of this process does not run",
                         message_text(message), deadline_s()));
      }
      continue;
    }
    Message& peer = *message.peer;
    message.copying = peer.copying = true;
    const Message& send = message.is_send ? message : peer;
    const Message& receive = message.is_send ? peer : message;
    const std::size_t bytes = send.data.bytes();
    lock.unlock();
    if (bytes > 0) std::memmove(receive.data.data, send.data.data, bytes);
    lock.lock();
    message.copying = peer.copying = false;
    message.copied = peer.copied = true;
    message.peer = peer.peer = nullptr;
    peer.changed.notify(world_->clock(), now());
  }
}

void Group::wait_message(Lock& lock, Message& message) {
  const double begin = now();
  try {
    wait_for_match(lock, message);
    copy(lock, message);
    if (message.copied) wait_for_link(lock, message.changed, message.end);
  } catch (...) {
    message.open = false;
    throw;
  }
  const bool success = message.copied && (!failed() || now() >= message.end);
  // The caller may free its buffer after a failure: the peer must no longer copy from or to it.
  while (message.copying) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
  if (success) count_wait(message.self(), begin, message.matched, message.link_s, message.end);
  message.open = false;
  if (!success) throw_failure();
}

}  // namespace tenon::thread_transport
