#include "cache_sets.hpp"

#include <algorithm>
#include <numeric>
#include <thread>

namespace tenon::tier_cached {

Geometry make_geometry(std::int64_t rows, double load_factor, std::int64_t ways) {
  if (rows == 0) return {};
  constexpr double kRounding = 1e-6;  // of a factor that was written as lines / rows
  const auto wanted = static_cast<std::int64_t>(load_factor * static_cast<double>(rows) + kRounding);
  const std::int64_t lines = std::clamp<std::int64_t>(wanted, 1, rows);
  return {lines, static_cast<std::uint64_t>(std::max<std::int64_t>(1, lines / ways))};
}

CacheSets::CacheSets(const Geometry& geometry, Policy policy, std::uint32_t aging)
    : sets_(geometry.sets),
      longer_sets_(static_cast<std::uint64_t>(geometry.lines) % geometry.sets),
      ways_(static_cast<std::uint32_t>(static_cast<std::uint64_t>(geometry.lines) / geometry.sets)),
      policy_(policy),
      aging_(aging),
      tags_(geometry.lines, kNone),
      words_(geometry.lines),
      holds_(std::make_unique<std::atomic<std::uint16_t>[]>(geometry.lines)),
      states_(std::make_unique<SetState[]>(geometry.sets)) {}

std::int64_t CacheSets::bytes(const Geometry& geometry) {
  constexpr std::int64_t kLine = 2 * sizeof(std::uint32_t) + sizeof(std::atomic<std::uint16_t>);
  return geometry.lines * kLine + static_cast<std::int64_t>(geometry.sets * sizeof(SetState));
}

void CacheSets::lock_contended(std::uint64_t set) {
  std::atomic<std::uint8_t>& lock = states_[set].lock;
  for (int tries = 1;; ++tries) {
    if (lock.load(std::memory_order_relaxed) == 0 && lock.exchange(1, std::memory_order_acquire) == 0) return;
    if (tries % 64 == 0) std::this_thread::yield();  // its holder may have lost the processor
  }
}

/// Before stamps would wrap, those of the set become 1, 2, ... in their order.
std::uint32_t CacheSets::next_stamp(std::uint64_t set) {
  std::uint32_t& clock = states_[set].clock;
  const std::uint32_t most = policy_ == Policy::kLru ? UINT32_MAX : kStampMask;
  if (clock == most) {
    std::uint32_t* const words = words_.data() + line(set, 0);
    const std::uint32_t count = ways(set);
    const std::uint32_t mask = policy_ == Policy::kLru ? UINT32_MAX : kStampMask;
    std::vector<std::uint32_t> order(count);  // once in millions of accesses of one set
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return (words[a] & mask) < (words[b] & mask); });
    for (std::uint32_t i = 0; i < count; ++i) words[order[i]] = (words[order[i]] & ~mask) | (i + 1);
    clock = count;
  }
  return ++clock;
}

void CacheSets::count_access(std::uint64_t set) {
  if (aging_ == 0 || ++states_[set].accesses < std::uint64_t{aging_} * ways(set)) return;
  states_[set].accesses = 0;
  std::uint32_t* const words = words_.data() + line(set, 0);
  const std::uint32_t count = ways(set);
  for (std::uint32_t way = 0; way < count; ++way)
    words[way] = (words[way] >> (kStampBits + 1) << kStampBits) | (words[way] & kStampMask);
}

void CacheSets::touch(std::uint64_t set, std::uint32_t way) {
  std::uint32_t& word = words_[line(set, way)];
  switch (policy_) {
    case Policy::kLru:
      word = next_stamp(set);
      break;
    case Policy::kLfu: {
      const std::uint32_t stamp = next_stamp(set);
      word = std::min((word >> kStampBits) + 1, kMostCount) << kStampBits | stamp;
      count_access(set);
      break;
    }
    case Policy::kClock:
      word = 1;
      break;
  }
}

void CacheSets::insert(const Place& place, std::uint32_t way, bool ahead) {
  const std::size_t at = line(place.set, way);
  tags_[at] = place.tag;
  switch (policy_) {
    case Policy::kLru:
      words_[at] = next_stamp(place.set);
      break;
    case Policy::kLfu: {
      const std::uint32_t stamp = next_stamp(place.set);
      words_[at] = (ahead ? 0U : 1U) << kStampBits | stamp;
      if (!ahead) count_access(place.set);
      break;
    }
    case Policy::kClock:
      words_[at] = 0;
      break;
  }
}

std::uint32_t CacheSets::victim(std::uint64_t set, std::uint16_t excluded) const {
  const std::uint32_t* const words = words_.data() + line(set, 0);
  const std::uint32_t count = ways(set);
  const std::atomic<std::uint16_t>* const holds = holds_.get() + line(set, 0);
  const auto allowed = [&](std::uint32_t way) {
    return (holds[way].load(std::memory_order_acquire) & excluded) == 0;
  };
  std::uint32_t best = kNone;
  if (policy_ != Policy::kClock) {
    for (std::uint32_t way = 0; way < count; ++way) {
      if ((best == kNone || words[way] < words[best]) && allowed(way)) best = way;
    }
    return best;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t way = (states_[set].accesses + i) % count;
    if (!allowed(way)) continue;
    if (words[way] == 0) return way;
    if (best == kNone) best = way;
  }
  return best;
}

void CacheSets::take(std::uint64_t set, std::uint32_t way) {
  if (policy_ != Policy::kClock) return;
  std::uint32_t* const words = words_.data() + line(set, 0);
  const std::uint32_t count = ways(set);
  std::uint32_t& hand = states_[set].accesses;
  const std::uint32_t passed = words[way] == 0 ? (way + count - hand) % count : count;
  for (std::uint32_t i = 0; i < passed; ++i) words[(hand + i) % count] = 0;
  hand = (way + 1) % count;
}

}  // namespace tenon::tier_cached
