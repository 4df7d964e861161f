// A group (group.hpp): its life cycle and failure, and the dispatch of its requests and frames; its
// collectives; its messages.
#include "group.hpp"

#include "engine.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/sdk/fixed_order.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>

TENON_ABI_BEGIN
namespace ring {

namespace {

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
    if (other != member_ && ends_[other] == End::kOpen)
      post(other, FrameKind::kFail, 0, static_cast<std::uint32_t>(kind), bytes_of(failure_text_));
  }
}

std::string Group::gone_text(int member) const {
  return fmt::format("rank {} is gone: {}", rank_of(member), engine_.gone(rank_of(member)));
}

// Fails the group, and returns true, if `member`, whose part in `what` is awaited, is gone.
bool Group::fail_if_gone(int member, std::string_view did_not, const std::string& what) {
  switch (ends_[member]) {
    case End::kOpen:
      return false;
    case End::kGone:
      fail(Failure::kError, fmt::format("{} during {}", gone_text(member), what), true);
      return true;
    case End::kAbandoned:
    case End::kClosed:
      break;
  }
  const bool abandoned = ends_[member] == End::kAbandoned;
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
  if (state_ != State::kOpen || member < 0 || ends_[member] != End::kOpen) return;
  ends_[member] = End::kGone;
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
      ends_[member] = header.index != 0 ? End::kAbandoned : End::kClosed;
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
  const Flight& flight = transport_common::is_collective(request)
                             ? static_cast<const Flight&>(find_operation(request))
                             : static_cast<const Flight&>(find_message(request));
  return failed() || flight.finished;
}

void Group::wait(Request request) {
  Lock lock(engine_.mutex());
  const Time begin = std::chrono::steady_clock::now();
  Time ready = begin;  // time from which the wait is for bytes
  Flight* flight = nullptr;
  if (transport_common::is_collective(request)) {
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
  ends_[member_] = End::kClosed;
  engine_.mark(*this);
  const auto patience =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(engine_.deadline_s());
  while (!all_released() && engine_.serves()) {
    if (changed_.wait_until(lock, std::chrono::time_point_cast<std::chrono::nanoseconds>(patience)) ==
        std::cv_status::timeout)
      break;
  }
}

// Collectives: numbering, agreement, transfer of parts, waiting.

namespace {

// A member that is this far ahead is faulty, because every operation waits for all members.
constexpr std::uint64_t kFarthest = 1 << 16;

}  // namespace

Request Group::start(const Signature& signature, const Buffers& buffers) {
  const Lock lock(engine_.mutex());
  if (failed()) throw_failure();
  const std::uint64_t number = next_++;
  Operation& operation = operation_at(number);
  operation.started = true;
  operation.signature = signature;
  operation.moved_at = std::chrono::steady_clock::now();
  std::vector<std::int64_t>& counts = operation.joins[member_].counts;
  counts.assign(buffers.send_counts.begin(), buffers.send_counts.end());
  counts.insert(counts.end(), buffers.receive_counts.begin(), buffers.receive_counts.end());
  const SignatureBytes head = write_signature(signature);
  told_.assign(head.begin(), head.end());
  write_counts(counts, told_);
  if (told_.size() > kFrameControlBytes)
    fail_run(fmt::format("'{}' has {} members, too many for all_to_all", name_, size()));
  operation.plan(buffers, member_, size());
  join(operation, member_, signature);
  if (failed()) {
    operation.open = false;  // no part of it has been requested
    throw_failure();
  }
  count(0, 0, 1);
  for (int other = 0; other < size(); ++other) {
    if (other != member_) post(other, FrameKind::kJoin, number, 0, told_);
  }
  check_finished(operation);
  engine_.mark(*this);
  return transport_common::collective_request(number);
}

// Returns the slot of operation `number`, initialised if this is its first member.
Operation& Group::operation_at(std::uint64_t number) {
  Operation& operation = transport_common::operation_slot(operations_, number);
  if (operation.open) return operation;
  operation.reset(number, size());
  operation.group = this;
  return operation;
}

Operation& Group::find_operation(Request request) {
  Operation* operation = transport_common::find_operation(operations_, request);
  if (operation == nullptr || !operation->started) transport_common::refuse_request(rank_of(member_), name_);
  return *operation;
}

std::string Group::operation_text(const Operation& operation) const {
  return fmt::format("{} #{} of '{}'", kind_name(operation.signature.kind), operation.number, name_);
}

void Group::on_join(int member, std::uint64_t number, std::span<const std::byte> payload) {
  Signature signature;
  if (failed() || state_ != State::kOpen) return;
  const bool in_step = number == joins_[member] && number < next_ + kFarthest;
  if (!in_step || !read_signature(payload, signature) || signature.kind == Kind::kMessage) {
    return fail(Failure::kError,
                fmt::format("rank {} joins operation #{} of '{}' out of step or in an unknown form",
                            rank_of(member), number, name_),
                true);
  }
  Operation& operation = operation_at(number);
  read_counts(payload.subspan(kSignatureBytes), operation.joins[member].counts);
  join(operation, member, signature);
  if (operation.started && !failed()) pump(operation);
}

void Group::join(Operation& operation, int member, const Signature& signature) {
  operation.joins[member].joined = true;
  operation.joins[member].signature = signature;
  ++operation.joined;
  operation.joined_at = std::chrono::steady_clock::now();
  ++joins_[member];
  for (int other = 0; other < size(); ++other) {
    const Join& joined = operation.joins[other];
    if (!joined.joined || joined.signature == signature) continue;
    const int low = std::min(member, other), high = std::max(member, other);
    fail(Failure::kError,
         fmt::format(
             "operation #{} of '{}': rank {} started {}, but rank {} started {}; all members start the "
             "same operations in the same order",
             operation.number, name_, rank_of(low), signature_text(operation.joins[low].signature),
             rank_of(high), signature_text(operation.joins[high].signature)),
         true);
    return;
  }
  if (signature.kind == Kind::kAllToAll) check_counts(operation, member);
}

// Compares the counts between `member` and all that have joined: every member sees every disagreement.
void Group::check_counts(const Operation& operation, int member) {
  const std::size_t members = size();
  const std::size_t one = member;
  for (std::size_t other = 0; other < members; ++other) {
    const Join &mine = operation.joins[one], &theirs = operation.joins[other];
    if (!theirs.joined) continue;
    if (mine.counts.size() != 2 * members) {
      return fail(
          Failure::kError,
          fmt::format("rank {} joins {} in an unknown form", rank_of(member), operation_text(operation)),
          true);
    }
    const auto compare = [&](std::size_t from, std::size_t to) {
      const std::int64_t sent = operation.joins[from].counts[to];
      const std::int64_t expected = operation.joins[to].counts[members + from];
      if (sent == expected) return;
      fail(Failure::kError,
           fmt::format("all_to_all #{} of '{}': rank {} sends {} elements to rank {}, which expects {}",
                       operation.number, name_, ranks_[from], sent, ranks_[to], expected),
           true);
    };
    compare(one, other);
    compare(other, one);
  }
}

// Passes sendable parts to the port: those whose data are present, to members that have joined and so have a
// destination for them.
void Group::pump(Operation& operation) {
  for (Transfer& send : operation.sends) {
    if (send.whole || !operation.joins[send.peer].joined) continue;
    const Transfer* const source = send.after < 0 ? nullptr : &operation.receives[send.after];
    const std::int64_t there = source ? source->moved : send.bytes;
    if (send.bytes == 0 && source && !source->whole) continue;
    while (!send.whole) {
      const std::int64_t part = std::min<std::int64_t>(kFrameDataBytes, send.bytes - send.moved);
      if (there - send.moved < part) break;
      ++operation.on_the_way;
      engine_.port().send(rank_of(send.peer),
                          {.kind = FrameKind::kData,
                           .epoch = epoch_,
                           .index = static_cast<std::uint32_t>(send.index),
                           .group = key_,
                           .number = operation.number,
                           .offset = static_cast<std::uint64_t>(send.moved),
                           .bytes = static_cast<std::uint32_t>(part)},
                          {send.memory + send.begin + send.moved, static_cast<std::size_t>(part)},
                          static_cast<const Flight*>(&operation));
      send.moved += part;
      send.whole = send.moved == send.bytes;
    }
    if (!send.whole) continue;
    ++operation.queued;
    count(static_cast<std::uint64_t>(send.bytes), 1, 0);
  }
  check_finished(operation);
}

void Group::check_finished(Operation& operation) {
  if (failed() || operation.finished || operation.joined < size() || operation.on_the_way > 0) return;
  if (operation.queued < operation.sends.size() || operation.arrived < operation.receives.size()) return;
  operation.finished = true;
  changed_.notify_all();
}

bool Group::fail_if_somebody_left(const Operation& operation) {
  for (int member = 0; member < size(); ++member) {
    if (operation.joins[member].joined || is_there(member)) continue;
    if (fail_if_gone(member, "joining", operation_text(operation))) return true;
  }
  return false;
}

void Group::wait_collective(Lock& lock, Operation& operation) {
  const auto begin = std::chrono::steady_clock::now();
  const auto patience =
      std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(engine_.deadline_s()));
  // Members have the deadline to join; then bytes have it to make progress, at any size.
  const auto limit = [&] {
    return (operation.joined < size() ? begin : std::max(begin, operation.moved_at)) + patience;
  };
  while (!failed() && !operation.finished) {
    if (fail_if_somebody_left(operation)) break;
    static_cast<void>(changed_.wait_until(lock, limit()));
    if (failed() || operation.finished || std::chrono::steady_clock::now() < limit()) continue;
    fail(Failure::kDeadline, late_text(operation), true);
  }
}

std::string Group::late_text(const Operation& operation) const {
  constexpr std::string_view kAdvice = "; see its log, or raise [run] deadline if it is only slow";
  const double seconds = engine_.deadline_s();
  std::vector<int> late;
  std::string started;
  for (int member = 0; member < size(); ++member) {
    if (operation.joins[member].joined) continue;
    late.push_back(rank_of(member));
    fmt::format_to(std::back_inserter(started), "; rank {} has started {} operations of '{}'",
                   rank_of(member), joins_[member], name_);
  }
  if (!late.empty()) {
    return fmt::format("{} did not join {} within {:g} s{}{}", ranks_text(late), operation_text(operation),
                       seconds, started, kAdvice);
  }
  for (const Transfer& receive : operation.receives) {
    if (receive.whole) continue;
    return fmt::format("{} stopped: nothing came from rank {} for {:g} s{}", operation_text(operation),
                       rank_of(receive.peer), seconds, kAdvice);
  }
  return fmt::format("{} stopped: rank {} took nothing for {:g} s{}", operation_text(operation),
                     rank_of((member_ + 1) % size()), seconds, kAdvice);
}

// Point-to-point transfers of a group (group.hpp). A receive sends a grant ahead; a send proceeds when it is
// matched with the grant of its tag, first started first. Neither side buffers.

Request Group::start_message(bool is_send, TensorView data, int other, int tag) {
  const Lock lock(engine_.mutex());
  if (failed()) throw_failure();
  std::size_t index = 0;
  Message& message = transport_common::free_message(messages_, name_, index);
  message.group = this;
  message.open = true;
  message.finished = message.released = message.matched = false;
  message.on_the_way = 0;
  message.moved_at = std::chrono::steady_clock::now();
  message.is_send = is_send;
  message.other = other;
  message.tag = tag;
  message.serial = next_serial_++;
  message.what = {.kind = Kind::kMessage, .dtype = data.dtype, .shape = data.shape};
  message.transfer = {
      .peer = other, .memory = static_cast<std::byte*>(data.data), .begin = 0, .bytes = data.bytes()};
  count(0, 0, 1);

  if (other == member_) {
    Message* partner = nullptr;
    for (const auto& candidate : messages_) {
      const bool fits = candidate->open && candidate->is_send != is_send && !candidate->matched &&
                        candidate->other == member_ && candidate->tag == tag;
      if (fits && (!partner || candidate->serial < partner->serial)) partner = candidate.get();
    }
    if (partner) is_send ? pass_to_self(message, *partner) : pass_to_self(*partner, message);
  } else if (is_send) {
    const auto grant = std::find_if(grants_.begin(), grants_.end(),
                                    [&](const Grant& g) { return g.from == other && g.tag == tag; });
    if (grant != grants_.end()) {
      const Grant met = *grant;
      grants_.erase(grant);
      match(message, met.number, met.what);
      engine_.mark(*this);
    }
  } else {
    post(other, FrameKind::kGrant, message.serial, static_cast<std::uint32_t>(tag),
         write_signature(message.what));
  }
  if (failed()) {
    message.open = false;
    throw_failure();
  }
  return transport_common::message_request(message.serial, index);
}

Message& Group::find_message(Request request) {
  Message* message = transport_common::find_message(messages_, request);
  if (message == nullptr) transport_common::refuse_request(rank_of(member_), name_);
  return *message;
}

std::string Group::message_text(const Message& message) const {
  const int from = message.is_send ? member_ : message.other, to = message.is_send ? message.other : member_;
  return fmt::format("the message of '{}' from rank {} to rank {} with tag {}", name_, rank_of(from),
                     rank_of(to), message.tag);
}

void Group::match(Message& send, std::uint64_t number, const Signature& expected) {
  if (!(send.what == expected)) {
    return fail(Failure::kError,
                fmt::format("message of '{}' with tag {}: rank {} sends {}, but rank {} expects {}", name_,
                            send.tag, rank_of(member_), signature_text(send.what), rank_of(send.other),
                            signature_text(expected)),
                true);
  }
  send.matched = true;
  send.number = number;
}

void Group::take_grant(const Grant& grant) {
  if (failed() || state_ != State::kOpen) return;
  Message* first = nullptr;
  for (const auto& message : messages_) {
    const bool fits = message->open && message->is_send && !message->matched &&
                      message->other == grant.from && message->tag == grant.tag;
    if (fits && (!first || message->serial < first->serial)) first = message.get();
  }
  if (!first) {
    if (grants_.size() >= transport_common::kMostMessages) {
      return fail(Failure::kError,
                  fmt::format("rank {} has {} receives in '{}' that nobody sends to", rank_of(grant.from),
                              grants_.size(), name_),
                  true);
    }
    grants_.push_back(grant);
    return;
  }
  match(*first, grant.number, grant.what);
  if (!failed()) pump(*first);
}

void Group::pass_to_self(Message& send, Message& receive) {
  match(send, receive.serial, receive.what);
  if (failed()) return;
  if (send.transfer.bytes > 0)
    std::memmove(receive.transfer.memory, send.transfer.memory, send.transfer.bytes);
  receive.matched = true;
  send.finished = receive.finished = true;
}

void Group::pump(Message& message) {
  Transfer& transfer = message.transfer;
  if (!message.is_send || !message.matched || transfer.whole) return;
  do {
    const std::int64_t part = std::min<std::int64_t>(kFrameDataBytes, transfer.bytes - transfer.moved);
    ++message.on_the_way;
    engine_.port().send(rank_of(message.other),
                        {.kind = FrameKind::kMessage,
                         .epoch = epoch_,
                         .index = 0,
                         .group = key_,
                         .number = message.number,
                         .offset = static_cast<std::uint64_t>(transfer.moved),
                         .bytes = static_cast<std::uint32_t>(part)},
                        {transfer.memory + transfer.moved, static_cast<std::size_t>(part)},
                        static_cast<const Flight*>(&message));
    transfer.moved += part;
    transfer.whole = transfer.moved == transfer.bytes;
  } while (!transfer.whole);
  count(static_cast<std::uint64_t>(transfer.bytes), 1, 0);
}

void Group::wait_message(Lock& lock, Message& message) {
  const auto begin = std::chrono::steady_clock::now();
  const auto patience =
      std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(message_deadline_s_));
  const auto under_way = [&] { return message.is_send ? message.matched : message.transfer.moved > 0; };
  const auto limit = [&] { return (under_way() ? std::max(begin, message.moved_at) : begin) + patience; };
  while (!failed() && !message.finished) {
    if (!(message.is_send && message.matched) && message.other != member_ && !is_there(message.other) &&
        fail_if_gone(message.other, "starting", message_text(message)))
      break;
    static_cast<void>(changed_.wait_until(lock, limit()));
    if (failed() || message.finished || std::chrono::steady_clock::now() < limit()) continue;
    fail(Failure::kDeadline,
         under_way()
             ? fmt::format("{} stopped: nothing of it moved for {:g} s; see the log of rank {}",
                           message_text(message), message_deadline_s_, rank_of(message.other))
             : fmt::format("{} did not start {} within {:g} s; see its log, or raise [run] deadline if it is "
                           "only slow",
                           ranks_text({rank_of(message.other)}), message_text(message), message_deadline_s_),
         true);
  }
}

}  // namespace ring
TENON_ABI_END
