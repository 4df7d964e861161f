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
  return {lines, static_cast<std::uint64_t>(std::max<std::int64_t>(1, lines / ways)), rows};
}

namespace {

std::uint64_t rows_of_set(const Geometry& geometry) {
  return (static_cast<std::uint64_t>(geometry.rows) + geometry.sets - 1) / geometry.sets;
}

}  // namespace

CacheSets::CacheSets(const Geometry& geometry, Policy policy, std::uint32_t aging)
    : sets_(geometry.sets),
      longer_sets_(static_cast<std::uint64_t>(geometry.lines) % geometry.sets),
      ways_(static_cast<std::uint32_t>(static_cast<std::uint64_t>(geometry.lines) / geometry.sets)),
      policy_(policy),
      aging_(aging),
      tags_(geometry.lines, kNone),
      words_(geometry.lines),
      holds_(std::make_unique<std::atomic<std::uint16_t>[]>(geometry.lines)),
      states_(std::make_unique<SetState[]>(geometry.sets)) {
  if (policy != Policy::kLfu) return;
  set_rows_ = rows_of_set(geometry);
  counts_.resize(set_rows_ * sets_);
}

std::int64_t CacheSets::bytes(const Geometry& geometry, Policy policy) {
  constexpr std::int64_t kLine = 2 * sizeof(std::uint32_t) + sizeof(std::atomic<std::uint16_t>);
  const std::uint64_t counts = policy == Policy::kLfu ? rows_of_set(geometry) * geometry.sets : 0;
  return geometry.lines * kLine + static_cast<std::int64_t>(geometry.sets * sizeof(SetState) + counts);
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
  if (clock == kMostStamp) {
    std::uint32_t* const words = words_.data() + line(set, 0);
    const std::uint32_t count = ways(set);
    std::vector<std::uint32_t> order(count);  // once in millions of accesses of one set
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return words[a] < words[b]; });
    for (std::uint32_t i = 0; i < count; ++i) words[order[i]] = i + 1;
    clock = count;
  }
  return ++clock;
}

void CacheSets::count_access(std::uint64_t set, std::uint32_t way) {
  std::uint8_t& row = row_count(set, way);
  if (row < kMostCount) ++row;
  if (aging_ == 0 || ++states_[set].accesses < std::uint64_t{aging_} * ways(set)) return;
  states_[set].accesses = 0;
  std::uint8_t* const counts = counts_.data() + set * set_rows_;
  for (std::uint64_t i = 0; i < set_rows_; ++i) counts[i] >>= 1;
}

void CacheSets::touch(std::uint64_t set, std::uint32_t way) {
  std::uint32_t& word = words_[line(set, way)];
  if (policy_ == Policy::kClock) {
    word = 1;
    return;
  }
  word = next_stamp(set);
  if (policy_ == Policy::kLfu) count_access(set, way);
}

void CacheSets::insert(const Place& place, std::uint32_t way, bool ahead) {
  const std::size_t at = line(place.set, way);
  tags_[at] = place.tag;
  words_[at] = policy_ == Policy::kClock ? 0 : next_stamp(place.set);
  if (policy_ == Policy::kLfu && !ahead) count_access(place.set, way);
}

std::uint32_t CacheSets::victim(std::uint64_t set, std::uint16_t excluded) const {
  const std::uint32_t* const words = words_.data() + line(set, 0);
  const std::uint32_t* const tags = tags_.data() + line(set, 0);
  const std::uint32_t count = ways(set);
  const std::atomic<std::uint16_t>* const holds = holds_.get() + line(set, 0);
  const auto allowed = [&](std::uint32_t way) {
    return (holds[way].load(std::memory_order_acquire) & excluded) == 0;
  };
  std::uint32_t best = kNone;
  if (policy_ != Policy::kClock) {
    const bool counted = policy_ == Policy::kLfu;
    const std::uint8_t* const counts = counts_.data() + set * set_rows_;
    std::uint64_t least = UINT64_MAX;  // a count above a stamp
    for (std::uint32_t way = 0; way < count; ++way) {
      const bool has_count = counted && tags[way] != kNone;
      const std::uint64_t rank = (has_count ? std::uint64_t{counts[tags[way]]} << 32U : 0) | words[way];
      if (rank >= least || !allowed(way)) continue;
      least = rank;
      best = way;
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
