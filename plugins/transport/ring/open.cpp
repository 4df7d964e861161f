// Opening, epochs and names of the groups of one process (engine.hpp).
#include "engine.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/traffic.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

TENON_ABI_BEGIN

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
    const std::uint32_t newest = newest_epoch_[static_cast<std::size_t>(rank)];
    if (newest <= spec.epoch) continue;
    fail_run(
        fmt::format("{}: '{}' of epoch {} is refused, rank {} is in epoch {}; take the membership of the "
                    "control plane and open it again",
                    name_, spec.name, spec.epoch, rank, newest));
  }
  for (const int rank : spec.ranks) newest_epoch_[static_cast<std::size_t>(rank)] = spec.epoch;
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
  std::uint32_t& newest = newest_epoch_[static_cast<std::size_t>(rank)];
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
