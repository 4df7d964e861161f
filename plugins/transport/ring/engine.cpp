// The thread that serves the port, and the frames that it passes to groups (engine.hpp).
#include "engine.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/traffic.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <exception>

TENON_ABI_BEGIN

using ring::Group;

namespace {

// Longest time between two polls of an idle thread: nothing depends on it.
constexpr double kIdleSeconds = 1;
// Little remains to be sent at the end: the last frames, for which no rank waits any more.
constexpr double kFarewellSeconds = 5;
constexpr std::size_t kFirstControls = 256;

/// While it exists, threads started by this one block signals: the program's signals are for its own threads.
/// A fault is handled on the thread where it occurs.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t set;
    ::sigfillset(&set);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) ::sigdelset(&set, fault);
    ::pthread_sigmask(SIG_SETMASK, &set, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

RingEngine::RingEngine(std::unique_ptr<FramePort> port, const WorldSpec& world, std::string name)
    : port_(std::move(port)),
      world_(world),
      name_(std::move(name)),
      rank_(port_->rank()),
      newest_epoch_(port_->ranks(), 0),
      gone_(port_->ranks()),
      outbox_(kFirstControls),
      arrivals_(port_->ranks()),
      control_(port_->ranks()),
      staging_(port_->ranks()) {
  for (int peer = 0; peer < port_->ranks(); ++peer) {
    if (peer == rank_) continue;
    control_[peer].resize(kFrameControlBytes);
    staging_[peer].resize(kFrameDataBytes);
  }
  const WithoutSignals none;
  thread_ = std::thread([this] { run(); });
}

RingEngine::~RingEngine() {
  stop();
}

void RingEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  port_->wake();
  if (thread_.joinable()) thread_.join();
}

void RingEngine::run() {
  try {
    serve();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    broken_ = fmt::format("{}: {}", name_, error.what());
    end_all(broken_);
  }
  const std::lock_guard lock(mutex_);
  serves_ = false;
  for (const auto& [key, group] : groups_) group->on_stopped();
}

void RingEngine::serve() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      woken_ = false;
      flush();
      if (stopping_) break;
    }
    port_->poll(*this, kIdleSeconds);
  }
  for (int peer = 0; peer < port_->ranks(); ++peer) {
    if (peer != rank_) port_->send(peer, {.kind = FrameKind::kBye}, {}, nullptr);
  }
  port_->close(std::min(world_.deadline_s, kFarewellSeconds));
}

// Sends in the ranks' request order: a member's start precedes its data, since the others send nothing until
// they receive it, and its data precede its kBye. Groups release abandoned memory before later frames can
// access it.
void RingEngine::flush() {
  for (std::size_t i = 0; i < outbox_used_; ++i) {
    if (outbox_[i].pumps) {
      if (const auto found = groups_.find(outbox_[i].group); found != groups_.end()) found->second->pump();
      continue;  // may have added to the outbox
    }
    Control& control = outbox_[i];
    const std::span<const std::byte> inline_bytes(control.bytes);
    const auto text = std::as_bytes(std::span(control.text.data(), control.text.size()));
    port_->send(control.to, control.header, text.empty() ? inline_bytes.first(control.header.bytes) : text,
                nullptr);
    control.text.clear();
  }
  outbox_used_ = 0;
  pumps_ = 0;
}

RingEngine::Control& RingEngine::next_in_outbox() {
  if (outbox_used_ == outbox_.size()) outbox_.emplace_back();
  return outbox_[outbox_used_++];
}

void RingEngine::post(int rank, const FrameHeader& header, std::span<const std::byte> payload) {
  if (!gone(rank).empty()) return;
  Control& control = next_in_outbox();
  control.pumps = false;
  control.to = rank;
  control.header = header;
  if (payload.size() <= control.bytes.size()) {
    std::copy(payload.begin(), payload.end(), control.bytes.begin());
  } else {
    control.text.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  }
  if (!woken_) port_->wake();
  woken_ = true;
}

void RingEngine::mark(Group& group) {
  const bool again =
      outbox_used_ > 0 && outbox_[outbox_used_ - 1].pumps && outbox_[outbox_used_ - 1].group == group.key();
  if (!again) {
    Control& task = next_in_outbox();
    task.pumps = true;
    task.group = group.key();
    ++pumps_;
  }
  if (!woken_) port_->wake();
  woken_ = true;
}

LinkCounts RingEngine::counts(int world_rank, Purpose purpose) {
  const std::lock_guard lock(mutex_);
  const bool known = world_rank == rank_ && static_cast<int>(purpose) < kPurposes;
  return known ? totals(purpose) : LinkCounts{};
}

void RingEngine::cancel(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_.empty()) return;
  cancelled_ = reason;
  for (const auto& [key, group] : groups_) group->fail(Group::Failure::kCancelled, cancelled_, true);
}

void RingEngine::end_all(const std::string& why) {
  for (const auto& [key, group] : groups_) group->fail(Group::Failure::kError, why, false);
}

FramePort::Landing RingEngine::begin(int from, const FrameHeader& header) {
  const std::size_t peer = from;
  Arrival& arrival = arrivals_[peer];
  arrival.header = header;
  arrival.group.reset();
  arrival.flight = nullptr;
  if (header.kind != FrameKind::kData && header.kind != FrameKind::kMessage) return {control_[peer].data()};
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(header.group);
  if (found == groups_.end()) return {};
  const FramePort::Landing landing =
      found->second->begin_part(from, header, staging_[peer].data(), arrival.flight);
  if (arrival.flight != nullptr) arrival.group = found->second;
  return {landing.to, static_cast<const ring::Flight*>(arrival.flight)};
}

void RingEngine::end(int from) {
  const std::size_t peer = from;
  const Arrival& arrival = arrivals_[peer];
  const std::lock_guard lock(mutex_);
  if (arrival.flight != nullptr) {
    arrival.group->end_part(arrival.header, staging_[peer].data(), *arrival.flight);
  } else if (arrival.header.kind != FrameKind::kData && arrival.header.kind != FrameKind::kMessage) {
    on_control(from, arrival.header, std::span<const std::byte>(control_[peer]).first(arrival.header.bytes));
  }
  // Replies to a frame are sent in the same round.
  if (pumps_ == 0) flush();
}

void RingEngine::sent(const void* owner) {
  auto* const flight = const_cast<ring::Flight*>(static_cast<const ring::Flight*>(owner));
  const std::lock_guard lock(mutex_);
  flight->group->on_sent(*flight);
}

void RingEngine::lost(int peer, const std::string& why) {
  const std::lock_guard lock(mutex_);
  set_gone(peer, "its connection " + why);
}

void RingEngine::set_gone(int rank, const std::string& why) {
  if (!gone(rank).empty()) return;
  gone_[rank] = why;
  for (const auto& [key, group] : groups_) group->on_gone(rank);
}

void RingEngine::on_control(int from, const FrameHeader& header, std::span<const std::byte> payload) {
  if (header.kind == FrameKind::kBye) return set_gone(from, "it has ended");
  if (header.kind == FrameKind::kOpen) retire(from, header.epoch);
  auto found = groups_.find(header.group);
  if (found == groups_.end()) {
    const std::uint32_t newest = newest_epoch_[rank_];
    if (header.epoch < newest) {
      if (header.kind != FrameKind::kOpen) return;
      const std::string text =
          fmt::format("operation refused: '{}' belongs to epoch {}, but rank {} is in epoch {}",
                      std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size()),
                      header.epoch, rank_, newest);
      FrameHeader answer = header;
      answer.kind = FrameKind::kFail;
      answer.index = static_cast<std::uint32_t>(Group::Failure::kError);
      answer.bytes = static_cast<std::uint32_t>(text.size());
      return post(from, answer, std::as_bytes(std::span(text.data(), text.size())));
    }
    found = groups_.emplace(header.group, std::make_shared<Group>(*this, header.group)).first;
  }
  Group& group = *found->second;
  group.is_opened() ? group.on_control(from, header, payload) : group.keep(from, header, payload);
}

// Opening, epochs and names of the groups of one process.

using ring::Group;

namespace {

bool shares_a_rank(const Group& group, std::span<const int> ranks, int* which) {
  for (const int rank : group.ranks()) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
    *which = rank;
    return true;
  }
  return false;
}

// One step of SplitMix64 (Steele, Lea, Flood 2014): every bit of a word reaches every bit of the result.
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

std::string old_epoch_text(std::string_view name, std::uint32_t epoch, int rank, std::uint32_t newest) {
  return fmt::format("operation refused: '{}' belongs to epoch {}, but rank {} is in epoch {}", name, epoch,
                     rank, newest);
}

}  // namespace

std::shared_ptr<Group> RingEngine::open(int world_rank, const GroupSpec& spec) {
  const int member = check_group(world_rank, spec);
  const std::lock_guard lock(mutex_);
  if (!serves_) fail_run(broken_.empty() ? name_ + ": open after its end" : broken_);
  refuse_or_adopt_epoch(spec);
  forget_ended();
  for (const auto& [key, group] : groups_) {
    if (!group->is_open() || group->epoch() != spec.epoch || group->name() != spec.name ||
        !std::equal(group->ranks().begin(), group->ranks().end(), spec.ranks.begin(), spec.ranks.end()))
      continue;
    fail_run(
        fmt::format("{}: rank {} has '{}' open already; names are unique among the open communicators of "
                    "the same ranks",
                    name_, world_rank, spec.name));
  }
  const std::uint64_t key = key_of(spec);
  auto& group = groups_[key];
  if (!group) group = std::make_shared<Group>(*this, key);
  group->open(spec, member);
  if (!cancelled_.empty()) group->fail(Group::Failure::kCancelled, cancelled_, true);
  return group;
}

int RingEngine::check_group(int world_rank, const GroupSpec& spec) const {
  const auto refuse = [&](const std::string& what) {
    fail_run(fmt::format("{}: rank {} opens '{}' of ranks {}: {}", name_, world_rank, spec.name,
                         fmt::join(spec.ranks, ", "), what));
  };
  if (world_rank != rank_) refuse(fmt::format("this process is rank {}", rank_));
  int member = -1;
  for (std::size_t i = 0; i < spec.ranks.size(); ++i) {
    const int rank = spec.ranks[i];
    if (rank < 0 || rank >= static_cast<int>(gone_.size()))
      refuse(fmt::format("the world has ranks 0 ... {}", gone_.size() - 1));
    const auto earlier = spec.ranks.first(i);
    if (std::find(earlier.begin(), earlier.end(), rank) != earlier.end())
      refuse(fmt::format("rank {} is listed twice", rank));
    if (rank == world_rank) member = static_cast<int>(i);
  }
  if (member < 0) refuse("it is not a member");
  if (static_cast<int>(spec.purpose) >= kPurposes) refuse("unknown purpose");
  if (spec.name.size() > kFrameControlBytes / 2) refuse("its name is too long");
  return member;
}

// Every member opens a group of one name equally often, so the count distinguishes openings.
std::uint64_t RingEngine::key_of(const GroupSpec& spec) {
  const std::uint64_t base = mixed(jitter_stream(spec.name, spec.ranks) ^ mixed(spec.epoch));
  return mixed(base + mixed(openings_[base]++));
}

// A newer epoch ends the communicators of older ones that share a rank with it, because not all their members
// will join.
void RingEngine::refuse_or_adopt_epoch(const GroupSpec& spec) {
  for (const int rank : spec.ranks) {
    const std::uint32_t newest = newest_epoch_[rank];
    if (newest <= spec.epoch) continue;
    fail_run(
        fmt::format("{}: '{}' of epoch {} is refused, rank {} is in epoch {}; take the membership of the "
                    "control plane and open it again",
                    name_, spec.name, spec.epoch, rank, newest));
  }
  for (const int rank : spec.ranks) newest_epoch_[rank] = spec.epoch;
  for (auto it = groups_.begin(); it != groups_.end();) {
    Group& group = *it->second;
    int shared = -1;
    if (group.is_open() && group.epoch() < spec.epoch && shares_a_rank(group, spec.ranks, &shared)) {
      group.fail(Group::Failure::kError, old_epoch_text(group.name(), group.epoch(), shared, spec.epoch),
                 false);
    }
    if (!group.is_opened() && group.has_early() && group.first_header().epoch < spec.epoch) {
      FrameHeader answer = group.first_header();
      const std::string text = old_epoch_text(group.first_name(), answer.epoch, rank_, spec.epoch);
      answer.kind = FrameKind::kFail;
      answer.index = static_cast<std::uint32_t>(Group::Failure::kError);
      answer.bytes = static_cast<std::uint32_t>(text.size());
      post(group.first_rank(), answer, std::as_bytes(std::span(text.data(), text.size())));
      it = groups_.erase(it);
    } else {
      ++it;
    }
  }
}

// Records that `rank` has opened a group of `epoch`.
void RingEngine::retire(int rank, std::uint32_t epoch) {
  std::uint32_t& newest = newest_epoch_[rank];
  if (epoch <= newest) return;
  newest = epoch;
  for (const auto& [key, group] : groups_) {
    if (group->is_open() && group->epoch() < epoch && group->member_of(rank) >= 0)
      group->fail(Group::Failure::kError, old_epoch_text(group->name(), group->epoch(), rank, epoch), false);
  }
}

void RingEngine::forget_ended() {
  std::erase_if(groups_, [](const auto& entry) { return entry.second->is_over(); });
}

TENON_ABI_END
