// Links and totals of world.hpp.
#include "world.hpp"

#include <algorithm>

namespace tenon::thread_transport {

World::World(const WorldSpec& spec)
    : spec_(spec),
      link_free_(static_cast<std::size_t>(spec.ranks), 0.0),
      totals_(static_cast<std::size_t>(spec.ranks) * kPurposes) {}

double World::reserve_links(std::span<const int> ranks, double earliest, double transfer_s) {
  const std::lock_guard lock(links_mutex_);
  double begin = earliest;
  for (const int rank : ranks) begin = std::max(begin, link_free_[static_cast<std::size_t>(rank)]);
  for (const int rank : ranks) link_free_[static_cast<std::size_t>(rank)] = begin + transfer_s;
  return begin;
}

std::size_t World::slot(int rank, Purpose purpose) const {
  return static_cast<std::size_t>(rank) * kPurposes + static_cast<std::size_t>(purpose);
}

void World::count_started(int rank, Purpose purpose, const Traffic& traffic) {
  Totals& totals = totals_[slot(rank, purpose)];
  totals.bytes.fetch_add(traffic.bytes, std::memory_order_relaxed);
  totals.messages.fetch_add(traffic.messages, std::memory_order_relaxed);
  totals.operations.fetch_add(1, std::memory_order_relaxed);
}

void World::count_blocked(int rank, Purpose purpose, double seconds) {
  totals_[slot(rank, purpose)].blocked.fetch_add(seconds, std::memory_order_relaxed);
}

LinkCounts World::totals(int rank, Purpose purpose) const {
  const Totals& totals = totals_[slot(rank, purpose)];
  return {totals.bytes.load(std::memory_order_relaxed), totals.messages.load(std::memory_order_relaxed),
          totals.operations.load(std::memory_order_relaxed), totals.blocked.load(std::memory_order_relaxed)};
}

}  // namespace tenon::thread_transport
