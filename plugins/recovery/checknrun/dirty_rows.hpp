// Tracks the rows of one table touched since they were last saved: one bit per row (Check-N-Run, NSDI 2022;
// papers/recovery.md section 2.2). Used by recovery `checknrun`; independent of saves.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon::recovery_checknrun {

/// Rows [first, last) of a table, those of this rank. Not thread-safe.
class DirtyRows {
 public:
  /// Needs 0 <= first <= last; uses (last - first) / 8 bytes.
  DirtyRows(std::int64_t first, std::int64_t last)
      : first_(first), last_(last), words_((static_cast<std::size_t>(last - first) + kBits - 1) / kBits) {}

  /// Accepts ids in any order, with repeats. Ignores ids outside [first, last), since a batch lists the rows
  /// of every rank.
  void set(std::span<const std::int64_t> ids) {
    for (const std::int64_t id : ids) {
      if (id < first_ || id >= last_) continue;
      const std::size_t row = id - first_;
      const std::uint64_t bit = std::uint64_t{1} << (row % kBits);
      count_ += (words_[row / kBits] & bit) == 0 ? 1 : 0;
      words_[row / kBits] |= bit;
    }
  }

  /// Returns the ids of the dirty rows, ascending. They stay dirty.
  std::vector<std::int64_t> ids() const {
    std::vector<std::int64_t> found;
    found.reserve(count_);
    for (std::size_t word = 0; word < words_.size(); ++word) {
      for (std::uint64_t left = words_[word]; left != 0; left &= left - 1) {
        found.push_back(
            first_ + static_cast<std::int64_t>(word * kBits + static_cast<unsigned>(std::countr_zero(left))));
      }
    }
    return found;
  }

  /// Returns the same ids and clears all bits. Rows touched while the save is written count for the next one.
  std::vector<std::int64_t> take() {
    std::vector<std::int64_t> taken = ids();
    words_.assign(words_.size(), 0);
    count_ = 0;
    return taken;
  }

  /// Marks the rows from take() dirty again after an aborted save; rows touched since stay dirty.
  void or_back(std::span<const std::int64_t> taken) { set(taken); }

  /// Number of dirty rows.
  std::int64_t count() const { return count_; }

 private:
  static constexpr std::size_t kBits = 64;

  std::int64_t first_, last_;
  std::vector<std::uint64_t> words_;
  std::int64_t count_ = 0;
};

}  // namespace tenon::recovery_checknrun
