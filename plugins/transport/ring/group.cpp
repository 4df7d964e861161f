// Life cycle and failure of a group, and the dispatch of its requests and frames (group.hpp).
#include "group.hpp"

#include "engine.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/sdk/fixed_order.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

TENON_ABI_BEGIN
namespace ring {

namespace {

constexpr std::uint64_t kCollectiveBit = 1;
// More operations than a training step keeps in flight, so that pools grow at most in the first unusual
// steps.
constexpr std::size_t kFirstOperations = 16;
constexpr std::size_t kFirstMessagesPerMember = 4;
constexpr std::size_t kFirstTransfers = 64;

std::span<const std::byte> bytes_of(const std::string& text) {
  const auto all = std::as_bytes(std::span(text.data(), text.size()));
  return all.first(std::min<std::size_t>(all.size(), kFrameControlBytes));
}

}  // namespace

bool Group::is_over() const {
  return state_ == State::kClosed &&
         std::all_of(ends_.begin(), ends_.end(), [](End end) { return end != End::kOpen; });
}

int Group::member_of(int rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

void Group::keep(int from, const FrameHeader& header, std::span<const std::byte> payload) {
  early_.push_back({from, header, {payload.begin(), payload.end()}});
}

std::string Group::first_name() const {
  const Early& first = early_.front();
  if (first.header.kind != FrameKind::kOpen) return "a group";
  return {reinterpret_cast<const char*>(first.payload.data()), first.payload.size()};
}

void Group::open(const GroupSpec& spec, int member) {
  name_ = spec.name;
  ranks_.assign(spec.ranks.begin(), spec.ranks.end());
  member_ = member;
  purpose_ = spec.purpose;
  message_deadline_s_ = spec.deadline_s > 0 ? spec.deadline_s : engine_.deadline_s();
  epoch_ = spec.epoch;
  ends_.assign(ranks_.size(), End::kOpen);
  joins_.assign(ranks_.size(), 0);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!engine_.gone(ranks_[i]).empty()) ends_[i] = End::kGone;
  }
  for (std::size_t i = 0; i < kFirstOperations; ++i) {
    operations_.push_back(std::make_unique<Operation>());
    Operation& operation = *operations_.back();
    operation.reset(0, size());  // allocates its memory
    operation.open = false;
    operation.sends.reserve(2 * ranks_.size());
    operation.receives.reserve(2 * ranks_.size());
    for (Join& join : operation.joins) join.counts.reserve(2 * ranks_.size());
  }
  for (std::size_t i = 0; i < kFirstMessagesPerMember * ranks_.size(); ++i)
    messages_.push_back(std::make_unique<Message>());
  grants_.reserve(kFirstTransfers);
  state_ = State::kOpen;
  for (int other = 0; other < size(); ++other) {
    if (other != member_)
      post(other, FrameKind::kOpen, 0, static_cast<std::uint32_t>(purpose_), bytes_of(name_));
  }
  for (const Early& early : early_) on_control(early.from, early.header, early.payload);
  early_.clear();
}

void Group::post(int member, FrameKind kind, std::uint64_t number, std::uint32_t index,
                 std::span<const std::byte> payload) {
  engine_.post(rank_of(member),
               {.kind = kind,
                .epoch = epoch_,
                .index = index,
                .group = key_,
                .number = number,
                .offset = 0,
                .bytes = static_cast<std::uint32_t>(payload.size())},
               payload);
}

void Group::count(std::uint64_t bytes, std::uint64_t messages, std::uint64_t operations) {
  for (LinkCounts* counts : {&counts_, &engine_.totals(purpose_)}) {
    counts->bytes_sent += bytes;
    counts->messages_sent += messages;
    counts->operations += operations;
  }
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

void Group::fail(Failure kind, std::string text, bool tell) {
  if (failed() || state_ != State::kOpen) return;
  failure_ = kind;
  failure_text_ = std::move(text);
  changed_.notify_all();
  engine_.mark(*this);
  if (!tell) return;
  for (int other = 0; other < size(); ++other) {
    if (other != member_ && ends_[static_cast<std::size_t>(other)] == End::kOpen)
      post(other, FrameKind::kFail, 0, static_cast<std::uint32_t>(kind), bytes_of(failure_text_));
  }
}

std::string Group::gone_text(int member) const {
  return fmt::format("rank {} is gone: {}", rank_of(member), engine_.gone(rank_of(member)));
}

// Fails the group, and returns true, if `member`, whose part in `what` is awaited, is gone.
bool Group::fail_if_gone(int member, std::string_view did_not, const std::string& what) {
  switch (ends_[static_cast<std::size_t>(member)]) {
    case End::kOpen:
      return false;
    case End::kGone:
      fail(Failure::kError, fmt::format("{} during {}", gone_text(member), what), true);
      return true;
    case End::kAbandoned:
    case End::kClosed:
      break;
  }
  const bool abandoned = ends_[static_cast<std::size_t>(member)] == End::kAbandoned;
  fail(abandoned ? Failure::kCancelled : Failure::kError,
       fmt::format("rank {} closed '{}' without {} {}", rank_of(member), name_, did_not, what), true);
  return true;
}

void Group::release(Flight& flight) {
  if (engine_.serves()) engine_.port().release(&flight);
  flight.on_the_way = 0;
  flight.released = true;
}

bool Group::all_released() const {
  const auto free = [](const auto& flight) { return !flight->open || flight->finished || flight->released; };
  return std::all_of(operations_.begin(), operations_.end(),
                     [&](const auto& operation) { return !operation->started || free(operation); }) &&
         std::all_of(messages_.begin(), messages_.end(), free);
}

void Group::pump() {
  if (state_ == State::kUnopened) return;
  const bool over = failed() || state_ == State::kClosed;
  const auto serve = [&](auto& flight) {
    if (flight.finished || flight.released) return;
    over ? release(flight) : pump(flight);
  };
  for (const auto& operation : operations_) {
    if (operation->open && operation->started) serve(*operation);
  }
  for (const auto& message : messages_) {
    if (message->open) serve(*message);
  }
  if (over) changed_.notify_all();
}

void Group::on_stopped() {
  fail(Failure::kError, fmt::format("{}: '{}' is used after its transport ended", engine_.name(), name_),
       false);
  pump();
}

void Group::on_gone(int rank) {
  const int member = member_of(rank);
  if (state_ != State::kOpen || member < 0 || ends_[static_cast<std::size_t>(member)] != End::kOpen) return;
  ends_[static_cast<std::size_t>(member)] = End::kGone;
  for (const auto& operation : operations_) {
    if (operation->open && operation->started && !operation->finished)
      fail_if_gone(member, "joining", operation_text(*operation));
  }
  for (const auto& message : messages_) {
    if (message->open && !message->finished && message->other == member)
      fail_if_gone(member, "starting", message_text(*message));
  }
  changed_.notify_all();
}

void Group::on_control(int from, const FrameHeader& header, std::span<const std::byte> payload) {
  const int member = member_of(from);
  if (member < 0 || member == member_) {
    return fail(Failure::kError,
                fmt::format("rank {} takes part in '{}' without being a member", from, name_), true);
  }
  switch (header.kind) {
    case FrameKind::kOpen:
      if (header.index != static_cast<std::uint32_t>(purpose_)) {
        fail(Failure::kError,
             fmt::format("rank {} opens '{}' for {}, rank {} for {}", rank_of(member_), name_,
                         purpose_name(purpose_), from,
                         purpose_name(static_cast<Purpose>(header.index & 0xff))),
             true);
      }
      return;
    case FrameKind::kJoin:
      return on_join(member, header.number, payload);
    case FrameKind::kGrant: {
      Grant grant{.from = member, .tag = static_cast<int>(header.index), .number = header.number, .what = {}};
      if (!read_signature(payload, grant.what))
        return fail(Failure::kError, fmt::format("rank {} asks for a message in an unknown form", from),
                    true);
      return take_grant(grant);
    }
    case FrameKind::kFail: {
      const bool known = header.index > 0 && header.index <= static_cast<std::uint32_t>(Failure::kError);
      return fail(known ? static_cast<Failure>(header.index) : Failure::kError,
                  {reinterpret_cast<const char*>(payload.data()), payload.size()}, false);
    }
    case FrameKind::kClose:
      ends_[static_cast<std::size_t>(member)] = header.index != 0 ? End::kAbandoned : End::kClosed;
      changed_.notify_all();
      return;
    default:
      return;
  }
}

FramePort::Landing Group::begin_part(int from, const FrameHeader& header, std::byte* staging,
                                     Flight*& flight) {
  flight = nullptr;
  if (state_ != State::kOpen || failed()) return {};
  Transfer* transfer = nullptr;
  if (header.kind == FrameKind::kData) {
    Operation& operation = *operations_[header.number % operations_.size()];
    if (operation.open && operation.number == header.number && operation.started &&
        header.index < operation.receives.size()) {
      flight = &operation;
      transfer = &operation.receives[header.index];
    }
  } else {
    for (const auto& message : messages_) {
      if (!message->open || message->is_send || message->serial != header.number) continue;
      flight = message.get();
      transfer = &message->transfer;
    }
  }
  const bool fits =
      transfer != nullptr && !transfer->whole && transfer->peer == member_of(from) &&
      header.offset == static_cast<std::uint64_t>(transfer->moved) &&
      header.bytes == std::min<std::int64_t>(kFrameDataBytes, transfer->bytes - transfer->moved);
  if (!fits) {
    flight = nullptr;
    fail(Failure::kError,
         fmt::format("rank {} sent {} bytes at {} of message {} of #{} of '{}', which nobody waits for", from,
                     header.bytes, header.offset, header.index, header.number, name_),
         true);
    return {};
  }
  if (transfer->own != nullptr) return {staging, flight};
  return {transfer->memory + transfer->begin + transfer->moved, flight};
}

void Group::end_part(const FrameHeader& header, std::byte* staging, Flight& flight) {
  if (state_ != State::kOpen || failed() || flight.released) return;
  auto* const operation = flight.is_message ? nullptr : static_cast<Operation*>(&flight);
  Transfer& transfer = operation ? operation->receives[header.index] : static_cast<Message&>(flight).transfer;
  if (transfer.own != nullptr && header.bytes > 0) {
    const std::int64_t at = transfer.begin + transfer.moved;
    const Signature& what = operation->signature;
    combine_hop(staging, transfer.own + at, std::int64_t{header.bytes} * 8 / dtype_bits(what.dtype),
                what.dtype, what.op);
    std::memcpy(transfer.memory + at, staging, header.bytes);
  }
  transfer.moved += header.bytes;
  flight.moved_at = std::chrono::steady_clock::now();
  transfer.whole = transfer.moved == transfer.bytes;
  if (operation == nullptr) {
    if (!transfer.whole) return;
    flight.finished = true;
    changed_.notify_all();
    return;
  }
  if (transfer.whole) ++operation->arrived;
  pump(*operation);
}

void Group::on_sent(Flight& flight) {
  if (flight.released) return;
  --flight.on_the_way;
  flight.moved_at = std::chrono::steady_clock::now();
  if (flight.on_the_way > 0 || failed()) return;
  if (!flight.is_message) return check_finished(static_cast<Operation&>(flight));
  if (!static_cast<Message&>(flight).transfer.whole) return;
  flight.finished = true;
  changed_.notify_all();
}

bool Group::done(Request request) {
  const Lock lock(engine_.mutex());
  const Flight& flight = (request.id & kCollectiveBit) != 0
                             ? static_cast<const Flight&>(find_operation(request))
                             : static_cast<const Flight&>(find_message(request));
  return failed() || flight.finished;
}

void Group::wait(Request request) {
  Lock lock(engine_.mutex());
  const Time begin = std::chrono::steady_clock::now();
  Time ready = begin;  // time from which the wait is for bytes
  Flight* flight = nullptr;
  if ((request.id & kCollectiveBit) != 0) {
    Operation& operation = find_operation(request);
    flight = &operation;
    wait_collective(lock, operation);
    ready = operation.joined_at;
  } else {
    Message& message = find_message(request);
    flight = &message;
    wait_message(lock, message);
  }
  // The caller may free its buffers after a failure, so the thread must release them first, which takes at
  // most one of its rounds.
  const auto patience =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(engine_.deadline_s());
  while (!flight->finished && !flight->released && engine_.serves()) {
    if (changed_.wait_until(lock, std::chrono::time_point_cast<std::chrono::nanoseconds>(patience)) ==
        std::cv_status::timeout)
      break;
  }
  count_wait(begin, ready, flight->moved_at);
  const bool success = flight->finished;
  flight->open = false;
  if (!success) throw_failure();
}

// Until the last member has joined, a wait is for a rank; from then on it is for bytes, which may have moved
// before the wait began.
void Group::count_wait(Time begin, Time ready, Time moved) {
  const auto seconds = [](Time::duration span) { return std::chrono::duration<double>(span).count(); };
  const Time end = std::chrono::steady_clock::now();
  const Time awaited = std::clamp(ready, begin, end);
  const double exposed = seconds(end - awaited);
  const double transfer = std::max(exposed, seconds(moved - ready));
  for (LinkCounts* counts : {&counts_, &engine_.totals(purpose_)}) {
    counts->blocked_seconds += seconds(end - begin);
    counts->late_seconds += seconds(awaited - begin);
    counts->transfer_seconds += transfer;
  }
}

LinkCounts Group::counts() {
  const Lock lock(engine_.mutex());
  return counts_;
}

void Group::cancel(std::string_view reason) {
  const Lock lock(engine_.mutex());
  fail(Failure::kCancelled, std::string(reason), true);
}

void Group::close(bool abandoned) {
  Lock lock(engine_.mutex());
  const Failure kind = abandoned ? Failure::kCancelled : Failure::kError;
  const auto left = [&](const std::string& what) {
    fail(kind, fmt::format("rank {} closed '{}' with {} in flight", rank_of(member_), name_, what), true);
  };
  for (const auto& operation : operations_) {
    if (operation->open && operation->started && !operation->finished) left(operation_text(*operation));
  }
  for (const auto& message : messages_) {
    if (message->open && message->matched && !message->finished) left(message_text(*message));
  }
  for (int other = 0; other < size(); ++other) {
    if (other == member_) continue;
    // A member that sees this end close must learn the reason first, even if another member's report is
    // slower.
    if (failed())
      post(other, FrameKind::kFail, 0, static_cast<std::uint32_t>(failure_), bytes_of(failure_text_));
    post(other, FrameKind::kClose, 0, abandoned ? 1 : 0, {});
  }
  state_ = State::kClosed;
  ends_[static_cast<std::size_t>(member_)] = End::kClosed;
  engine_.mark(*this);
  const auto patience =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(engine_.deadline_s());
  while (!all_released() && engine_.serves()) {
    if (changed_.wait_until(lock, std::chrono::time_point_cast<std::chrono::nanoseconds>(patience)) ==
        std::cv_status::timeout)
      break;
  }
}

}  // namespace ring
TENON_ABI_END
