// Tags and replacement of a set-associative cache: which row lies in which line, and which line goes next.
// Knows no values. Functions that take a set are called with its lock; Hold words have no lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tenon::tier_cached {

enum class Policy : std::uint8_t { kLru, kLfu, kClock };

/// Lines, and their sets: each of lines / sets lines, of which the first lines % sets have one more.
struct Geometry {
  std::int64_t lines = 0;
  std::uint64_t sets = 1;
  std::int64_t rows = 0;  ///< that may have a line
};
/// The share of `rows` rounded down, at least one line; at least `ways` lines a set where there are so many.
Geometry make_geometry(std::int64_t rows, double load_factor, std::int64_t ways);

/// State of a line beside its tag, in one atomic word.
/// kBusy: its values do not belong to its tag yet; only the thread that set it may clear it. Users copy to or
/// from the line: it keeps its row as long as there are any.
namespace hold {
inline constexpr std::uint16_t kBusy = 0x8000, kDirty = 0x4000, kUsers = 0x0FFF;
/// Told of for an even or an odd slot.
inline constexpr std::uint16_t kPins[2] = {0x1000, 0x2000};
inline constexpr std::uint16_t kPinned = kPins[0] | kPins[1];
}  // namespace hold

class CacheSets {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// Where a row may lie: its set, and what tells it from the other rows of the set.
  struct Place {
    std::uint64_t set;
    std::uint32_t tag;
  };

  /// `aging`: see touch().
  CacheSets(const Geometry& geometry, Policy policy, std::uint32_t aging);
  /// Bytes of all tags, states and counts.
  static std::int64_t bytes(const Geometry& geometry, Policy policy);

  /// Rows are counted from 0. Neighbouring ones lie in different sets: the most
  /// frequent ones often are neighbours.
  Place place(std::uint64_t row) const {
    if (row <= UINT32_MAX && sets_ <= UINT32_MAX) {  // the narrow division takes a fraction of the time
      const auto narrow = static_cast<std::uint32_t>(row), sets = static_cast<std::uint32_t>(sets_);
      return {narrow % sets, narrow / sets};
    }
    return {row % sets_, static_cast<std::uint32_t>(row / sets_)};
  }
  std::int64_t row(std::uint64_t set, std::uint32_t tag) const {
    return static_cast<std::int64_t>(tag * sets_ + set);
  }
  std::uint32_t ways(std::uint64_t set) const { return ways_ + (set < longer_sets_ ? 1 : 0); }
  std::size_t line(std::uint64_t set, std::uint32_t way) const {
    return set * ways_ + std::min(set, longer_sets_) + way;
  }

  void prefetch(std::uint64_t set) const {
    __builtin_prefetch(&states_[set], 1);
    const std::size_t begin = line(set, 0);
    __builtin_prefetch(tags_.data() + begin);
    __builtin_prefetch(words_.data() + begin, 1);
    __builtin_prefetch(holds_.get() + begin, 1);
  }
  void lock(std::uint64_t set) {
    if (states_[set].lock.exchange(1, std::memory_order_acquire) != 0) lock_contended(set);
  }
  void unlock(std::uint64_t set) { states_[set].lock.store(0, std::memory_order_release); }

  /// The way that has the row; kNone.
  std::uint32_t find(const Place& place) const {
    const std::uint32_t* const tags = tags_.data() + line(place.set, 0);
    const std::uint32_t count = ways(place.set);
    std::uint32_t way = 0;
    for (; way + 4 <= count; way += 4) {
      const bool any = (tags[way] == place.tag) | (tags[way + 1] == place.tag) |
                       (tags[way + 2] == place.tag) | (tags[way + 3] == place.tag);
      if (any) break;
    }
    for (; way < count; ++way) {
      if (tags[way] == place.tag) return way;
    }
    return kNone;
  }
  /// A way without a row, the first one; kNone.
  std::uint32_t find_empty(std::uint64_t set) const { return find({set, kNone}); }
  std::uint32_t tag(std::uint64_t set, std::uint32_t way) const { return tags_[line(set, way)]; }
  /// Undoes what insert() did.
  void set_tag(std::uint64_t set, std::uint32_t way, std::uint32_t tag) { tags_[line(set, way)] = tag; }

  /// An access hits the line. lru, lfu: it is the newest. lfu: the count of its row grows by 1 up to
  /// kMostCount; after every aging x lines accesses of a set of so many lines (0: never) the counts of all
  /// rows of the set are halved. clock: its bit is set.
  void touch(std::uint64_t set, std::uint32_t way);
  /// The line gets a row: the newest one, with its bit clear. lfu: its count grows unless the row is fetched
  /// ahead of an access.
  void insert(const Place& place, std::uint32_t way, bool ahead);

  /// The way that the policy gives up, among those without any bit of `excluded` in their hold word; kNone.
  /// Changes nothing. lru: the oldest. lfu: the lowest count, of those the oldest. clock: the first from the
  /// hand on whose bit is clear; where all are set, the one at the hand.
  std::uint32_t victim(std::uint64_t set, std::uint16_t excluded) const;
  /// The victim is taken: the hand goes to the line after it, and clears the bits that it passes.
  void take(std::uint64_t set, std::uint32_t way);

  std::atomic<std::uint16_t>& hold(std::size_t line) { return holds_[line]; }
  /// Rows of the set on their way to the next level: their values there are old. A miss waits for 0.
  std::atomic<std::uint16_t>& leaving(std::uint64_t set) { return states_[set].leaving; }

  static constexpr std::uint8_t kMostCount = 255;
  static constexpr std::uint32_t kMostStamp = (1U << 24) - 1;  ///< a test can reach it

 private:
  struct SetState {
    std::uint32_t clock = 0;     ///< accesses and arrivals: the stamp of the newest line
    std::uint32_t accesses = 0;  ///< lfu: since counts were halved; clock: the hand
    std::atomic<std::uint16_t> leaving{0};
    std::atomic<std::uint8_t> lock{0};
  };
  void lock_contended(std::uint64_t set);
  std::uint32_t next_stamp(std::uint64_t set);
  /// lfu: of the row in that line.
  std::uint8_t& row_count(std::uint64_t set, std::uint32_t way) {
    return counts_[set * set_rows_ + tags_[line(set, way)]];
  }
  void count_access(std::uint64_t set, std::uint32_t way);

  std::uint64_t sets_, longer_sets_;
  std::uint32_t ways_;
  Policy policy_;
  std::uint32_t aging_;
  std::vector<std::uint32_t> tags_, words_;  ///< a word is the stamp of the newest access, or clock's bit
  std::uint64_t set_rows_ = 0;               ///< most rows of a set
  std::vector<std::uint8_t> counts_;  ///< lfu: of all rows, set by set, whether they have a line or not
  std::unique_ptr<std::atomic<std::uint16_t>[]> holds_;
  std::unique_ptr<SetState[]> states_;
};

}  // namespace tenon::tier_cached
