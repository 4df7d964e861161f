// Read counts of each row of a range, four bytes a row, and statistics of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon::tables {

struct HotRow {
  std::int64_t row = 0;
  std::uint32_t accesses = 0;
};

struct AccessFacts {
  std::uint64_t accesses = 0;
  std::int64_t touched = 0;          ///< rows with at least one access
  std::vector<HotRow> hottest = {};  ///< most accesses first, then the smaller row
  /// Share of all accesses that hit the hottest 1 % and 10 % of the rows, rounded up to whole rows. 0 without
  /// accesses.
  double share_of_1_percent = 0, share_of_10_percent = 0;
};

class RowCounts {
 public:
  /// Rows [first, last).
  RowCounts(std::int64_t first, std::int64_t last);

  /// A row's count saturates at 2^32 - 1; the total number of accesses keeps counting. Throws Error(kRun) for
  /// a row outside the range. Does not allocate.
  void add(std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts);

  std::int64_t first() const { return first_; }
  std::int64_t last() const { return first_ + rows(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(counts_.size()); }
  std::int64_t touched() const { return touched_; }
  /// Returns the statistics with the `most` hottest rows. Temporarily copies the counts above zero.
  AccessFacts facts(std::size_t most) const;

 private:
  std::vector<HotRow> hottest(std::size_t most) const;

  std::int64_t first_;
  std::vector<std::uint32_t> counts_;
  std::uint64_t accesses_ = 0;
  std::int64_t touched_ = 0;
};

}  // namespace tenon::tables
