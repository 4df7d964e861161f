// Collectives of a group: numbering, agreement, transfer of parts, waiting (group.hpp).
#include "group.hpp"

#include "engine.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

TENON_ABI_BEGIN
namespace ring {

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
  std::vector<std::int64_t>& counts = operation.joins[static_cast<std::size_t>(member_)].counts;
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
  return {number << 1 | 1};
}

// Returns the slot of operation `number`, initialised if this is its first member.
Operation& Group::operation_at(std::uint64_t number) {
  while (true) {
    Operation& operation = *operations_[number % operations_.size()];
    if (operation.open && operation.number == number) return operation;
    if (!operation.open) {
      operation.reset(number, size());
      operation.group = this;
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

Operation& Group::find_operation(Request request) {
  const std::uint64_t number = request.id >> 1;
  Operation& operation = *operations_[number % operations_.size()];
  if (operation.open && operation.number == number && operation.started) return operation;
  fail_run(fmt::format("rank {} waits twice for a request of '{}', or for one that '{}' did not give",
                       rank_of(member_), name_, name_));
}

std::string Group::operation_text(const Operation& operation) const {
  return fmt::format("{} #{} of '{}'", kind_name(operation.signature.kind), operation.number, name_);
}

void Group::on_join(int member, std::uint64_t number, std::span<const std::byte> payload) {
  Signature signature;
  if (failed() || state_ != State::kOpen) return;
  const bool in_step = number == joins_[static_cast<std::size_t>(member)] && number < next_ + kFarthest;
  if (!in_step || !read_signature(payload, signature) || signature.kind == Kind::kMessage) {
    return fail(Failure::kError,
                fmt::format("rank {} joins operation #{} of '{}' out of step or in an unknown form",
                            rank_of(member), number, name_),
                true);
  }
  Operation& operation = operation_at(number);
  read_counts(payload.subspan(kSignatureBytes), operation.joins[static_cast<std::size_t>(member)].counts);
  join(operation, member, signature);
  if (operation.started && !failed()) pump(operation);
}

void Group::join(Operation& operation, int member, const Signature& signature) {
  operation.joins[static_cast<std::size_t>(member)].joined = true;
  operation.joins[static_cast<std::size_t>(member)].signature = signature;
  ++operation.joined;
  operation.joined_at = std::chrono::steady_clock::now();
  ++joins_[static_cast<std::size_t>(member)];
  for (int other = 0; other < size(); ++other) {
    const Join& joined = operation.joins[static_cast<std::size_t>(other)];
    if (!joined.joined || joined.signature == signature) continue;
    const int low = std::min(member, other), high = std::max(member, other);
    fail(Failure::kError,
         fmt::format(
             "operation #{} of '{}': rank {} started {}, but rank {} started {}; all members start the "
             "same operations in the same order",
             operation.number, name_, rank_of(low),
             signature_text(operation.joins[static_cast<std::size_t>(low)].signature), rank_of(high),
             signature_text(operation.joins[static_cast<std::size_t>(high)].signature)),
         true);
    return;
  }
  if (signature.kind == Kind::kAllToAll) check_counts(operation, member);
}

// Compares the counts between `member` and all that have joined: every member sees every disagreement.
void Group::check_counts(const Operation& operation, int member) {
  const auto members = static_cast<std::size_t>(size());
  const auto one = static_cast<std::size_t>(member);
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
    if (send.whole || !operation.joins[static_cast<std::size_t>(send.peer)].joined) continue;
    const Transfer* const source =
        send.after < 0 ? nullptr : &operation.receives[static_cast<std::size_t>(send.after)];
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
    if (operation.joins[static_cast<std::size_t>(member)].joined || is_there(member)) continue;
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
    if (operation.joins[static_cast<std::size_t>(member)].joined) continue;
    late.push_back(rank_of(member));
    fmt::format_to(std::back_inserter(started), "; rank {} has started {} operations of '{}'",
                   rank_of(member), joins_[static_cast<std::size_t>(member)], name_);
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

}  // namespace ring
TENON_ABI_END
