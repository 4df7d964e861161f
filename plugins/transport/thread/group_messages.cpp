// Point-to-point transfers of a group (group.hpp). A send and a receive are matched by (from, to, tag) in
// starting order; then the end that waits first copies, straight from buffer to buffer. A send therefore ends
// only once its receive was started.
#include "group.hpp"

#include <tenon/transport.hpp>

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>

namespace tenon::thread_transport {

namespace {

constexpr int kIndexBits = 16;
constexpr std::size_t kMostMessages = std::size_t{1} << kIndexBits;

}  // namespace

Request Group::start_message(int member, bool is_send, TensorView data, int other, int tag) {
  const Lock lock(mutex_);
  if (failed()) throw_failure();
  std::size_t index = 0;
  Message& message = free_message(index);
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
    const std::uint64_t number = sends_[static_cast<std::size_t>(member)]++;
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

Message& Group::find_message(int member, Request request) {
  const std::size_t index = (request.id >> 1) & (kMostMessages - 1);
  const std::uint64_t serial = request.id >> (kIndexBits + 1);
  if (index < messages_.size()) {
    Message& message = *messages_[index];
    if (message.open && message.serial == serial && message.self() == member) return message;
  }
  fail_run(fmt::format("rank {} waits twice for a request of '{}', or for one that '{}' did not give",
                       rank_of(member), name_, name_));
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
    if (ends_[static_cast<std::size_t>(other)] > End::kOpen) {
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
    const auto bytes = static_cast<std::size_t>(send.data.bytes());
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
