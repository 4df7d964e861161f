// Links and totals of world.hpp.
#include "world.hpp"

#include <algorithm>

namespace tenon::thread_transport {

World::World(const WorldSpec& spec)
    : spec_(spec), link_free_(spec.ranks, 0.0), totals_(static_cast<std::size_t>(spec.ranks) * kPurposes) {}

LinkSpec World::link_of(std::span<const int> ranks) const {
  LinkSpec link = spec_.link;
  double slowest = 1;
  for (const int rank : ranks) {
    if (static_cast<std::size_t>(rank) < spec_.link_speed.size())
      slowest = std::min(slowest, spec_.link_speed[rank]);
  }
  link.bandwidth_bits_per_s *= slowest;
  return link;
}

double World::reserve_links(std::span<const int> ranks, double earliest, double transfer_s) {
  const std::lock_guard lock(links_mutex_);
  double begin = earliest;
  for (const int rank : ranks) begin = std::max(begin, link_free_[rank]);
  for (const int rank : ranks) link_free_[rank] = begin + transfer_s;
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

void World::count_waited(int rank, Purpose purpose, const Waited& waited) {
  Totals& totals = totals_[slot(rank, purpose)];
  totals.blocked.fetch_add(waited.blocked, std::memory_order_relaxed);
  totals.late.fetch_add(waited.late, std::memory_order_relaxed);
  totals.transfer.fetch_add(waited.transfer, std::memory_order_relaxed);
}

LinkCounts World::totals(int rank, Purpose purpose) const {
  const Totals& totals = totals_[slot(rank, purpose)];
  LinkCounts counts;
  counts.bytes_sent = totals.bytes.load(std::memory_order_relaxed);
  counts.messages_sent = totals.messages.load(std::memory_order_relaxed);
  counts.operations = totals.operations.load(std::memory_order_relaxed);
  counts.blocked_seconds = totals.blocked.load(std::memory_order_relaxed);
  counts.late_seconds = totals.late.load(std::memory_order_relaxed);
  counts.transfer_seconds = totals.transfer.load(std::memory_order_relaxed);
  return counts;
}

}  // namespace tenon::thread_transport
