// Point-to-point transfers of a group (group.hpp). A receive sends a grant ahead; a send proceeds when it is
// matched with the grant of its tag, first started first. Neither side buffers.
#include "group.hpp"

#include "engine.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

TENON_ABI_BEGIN
namespace ring {

namespace {

constexpr int kIndexBits = 16;
constexpr std::size_t kMostMessages = std::size_t{1} << kIndexBits;

}  // namespace

Request Group::start_message(bool is_send, TensorView data, int other, int tag) {
  const Lock lock(engine_.mutex());
  if (failed()) throw_failure();
  std::size_t index = 0;
  Message& message = free_message(index);
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
  return {(message.serial << kIndexBits | index) << 1};
}

Message& Group::free_message(std::size_t& index) {
  for (index = 0; index < messages_.size(); ++index) {
    if (!messages_[index]->open) return *messages_[index];
  }
  if (index == kMostMessages)
    fail_run(fmt::format("'{}' has {} messages in flight; wait for some", name_, index));
  messages_.push_back(std::make_unique<Message>());
  return *messages_.back();
}

Message& Group::find_message(Request request) {
  const std::size_t index = (request.id >> 1) & (kMostMessages - 1);
  const std::uint64_t serial = request.id >> (kIndexBits + 1);
  if (index < messages_.size()) {
    Message& message = *messages_[index];
    if (message.open && message.serial == serial) return message;
  }
  fail_run(fmt::format("rank {} waits twice for a request of '{}', or for one that '{}' did not give",
                       rank_of(member_), name_, name_));
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
    if (grants_.size() >= kMostMessages) {
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
    std::memmove(receive.transfer.memory, send.transfer.memory,
                 static_cast<std::size_t>(send.transfer.bytes));
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
