// Opening and epochs of the thread transport (thread_transport.hpp).
#include "thread_transport.hpp"

#include "communicator.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace tenon::thread_transport {

void ThreadTransport::connect(const WorldSpec& world) {
  if (world_) fail_run("transport.thread: connected twice");
  if (world.ranks < 1)
    fail_config(fmt::format("transport.thread: {} ranks, expected at least 1", world.ranks));
  if (!(world.deadline_s > 0)) {
    fail_config(
        fmt::format("transport.thread: the deadline is {} s, expected more than 0", world.deadline_s));
  }
  const LinkSpec& link = world.link;
  if (!(link.bandwidth_bits_per_s >= 0 && link.latency_s >= 0 && link.jitter_s >= 0)) {
    fail_config(fmt::format("transport.link: bandwidth {}, latency {} and jitter {} must not be negative",
                            link.bandwidth_bits_per_s, link.latency_s, link.jitter_s));
  }
  if (!world.clock) fail_run("transport.thread: connected without a clock");
  if (world.rendezvous != nullptr) {
    fail_config(
        "transport.thread: its ranks are threads of one process, but this process is one rank of several; "
        "start it without a launcher, or choose a transport of processes, e.g. --set transport.type=socket");
  }
  world_ = std::make_shared<World>(world);
  ranks_.resize(static_cast<std::size_t>(world.ranks));
  std::iota(ranks_.begin(), ranks_.end(), 0);
  newest_epoch_.assign(ranks_.size(), 0);
}

std::unique_ptr<Communicator> ThreadTransport::open(int world_rank, const GroupSpec& spec) {
  if (!world_) fail_run("transport.thread: open before connect");
  const int member = check_group(world_rank, spec);
  const std::lock_guard lock(mutex_);
  refuse_or_adopt_epoch(spec);
  std::shared_ptr<Group> group = find_or_make(member, spec);
  if (!cancelled_.empty()) group->cancel(cancelled_);
  auto communicator = std::make_unique<ThreadCommunicator>(group, member);
  group->open_end(member, spec.deadline_s);
  return communicator;
}

void ThreadTransport::cancel(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_.empty()) return;
  cancelled_ = reason;
  for (const auto& group : groups_) group->cancel(reason);
}

LinkCounts ThreadTransport::counts(int world_rank, Purpose purpose) const {
  const bool known = world_ && world_rank >= 0 && world_rank < static_cast<int>(ranks_.size()) &&
                     static_cast<int>(purpose) < kPurposes;
  return known ? world_->totals(world_rank, purpose) : LinkCounts{};
}

int ThreadTransport::check_group(int world_rank, const GroupSpec& spec) const {
  const auto refuse = [&](const std::string& what) {
    fail_run(fmt::format("transport.thread: rank {} opens '{}' of ranks {}: {}", world_rank, spec.name,
                         fmt::join(spec.ranks, ", "), what));
  };
  int member = -1;
  for (std::size_t i = 0; i < spec.ranks.size(); ++i) {
    const int rank = spec.ranks[i];
    if (rank < 0 || rank >= static_cast<int>(ranks_.size())) {
      refuse(fmt::format("the world has ranks 0 ... {}", ranks_.size() - 1));
    }
    if (std::find(spec.ranks.begin(), spec.ranks.begin() + static_cast<std::ptrdiff_t>(i), rank) !=
        spec.ranks.begin() + static_cast<std::ptrdiff_t>(i)) {
      refuse(fmt::format("rank {} is listed twice", rank));
    }
    if (rank == world_rank) member = static_cast<int>(i);
  }
  if (member < 0) refuse("it is not a member");
  if (static_cast<int>(spec.purpose) >= kPurposes) refuse("unknown purpose");
  return member;
}

// A newer epoch ends the communicators of older ones that share a rank with it, because not all their members
// will join.
void ThreadTransport::refuse_or_adopt_epoch(const GroupSpec& spec) {
  for (const int rank : spec.ranks) {
    const std::uint32_t newest = newest_epoch_[static_cast<std::size_t>(rank)];
    if (newest <= spec.epoch) continue;
    fail_run(fmt::format(
        "transport.thread: '{}' of epoch {} is refused, rank {} is in epoch {}; take the membership "
        "of the control plane and open it again",
        spec.name, spec.epoch, rank, newest));
  }
  for (const int rank : spec.ranks) newest_epoch_[static_cast<std::size_t>(rank)] = spec.epoch;
  for (const auto& group : groups_) {
    if (group->epoch() >= spec.epoch) continue;
    const auto ranks = group->ranks();
    const auto shared = std::find_if(ranks.begin(), ranks.end(), [&](int rank) {
      return std::find(spec.ranks.begin(), spec.ranks.end(), rank) != spec.ranks.end();
    });
    if (shared == ranks.end()) continue;
    group->retire(fmt::format("operation refused: '{}' belongs to epoch {}, but rank {} is in epoch {}",
                              group->name(), group->epoch(), *shared, spec.epoch));
  }
}

// A name may be opened again once closed; a rank joins the oldest group in which it has not been yet.
std::shared_ptr<Group> ThreadTransport::find_or_make(int member, const GroupSpec& spec) {
  std::erase_if(groups_, [](const auto& group) { return group->all_closed(); });
  for (const auto& group : groups_) {
    const bool same =
        group->epoch() == spec.epoch && group->name() == spec.name &&
        std::equal(group->ranks().begin(), group->ranks().end(), spec.ranks.begin(), spec.ranks.end());
    if (!same) continue;
    const int rank = spec.ranks[static_cast<std::size_t>(member)];
    const Group::End end = group->end_of(member);
    if (end == Group::End::kOpen) {
      fail_run(
          fmt::format("transport.thread: rank {} has '{}' open already; names are unique among the open "
                      "communicators of the same ranks",
                      rank, spec.name));
    }
    if (end == Group::End::kClosed) continue;
    if (group->purpose() != spec.purpose) {
      fail_run(fmt::format("transport.thread: rank {} opens '{}' for {}, another rank for {}", rank,
                           spec.name, purpose_name(spec.purpose), purpose_name(group->purpose())));
    }
    return group;
  }
  return groups_.emplace_back(std::make_shared<Group>(world_, spec));
}

}  // namespace tenon::thread_transport
