// Counting, and the orders of row_counts.hpp.
#include "row_counts.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>

namespace tenon::tables {
namespace {

/// Returns the share of the `most` largest; reorders `counts`.
double share_of_largest(std::vector<std::uint32_t>& counts, std::int64_t most) {
  const auto all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (all == 0) return 0;
  const auto end = counts.begin() + std::min<std::int64_t>(most, static_cast<std::int64_t>(counts.size()));
  if (end != counts.end()) std::nth_element(counts.begin(), end, counts.end(), std::greater<>());
  return static_cast<double>(std::accumulate(counts.begin(), end, std::uint64_t{0})) /
         static_cast<double>(all);
}

}  // namespace

RowCounts::RowCounts(std::int64_t first, std::int64_t last)
    : first_(first), counts_(static_cast<std::size_t>(std::max<std::int64_t>(0, last - first)), 0) {}

void RowCounts::add(std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts) {
  constexpr std::uint32_t kFull = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < first_ || ids[i] >= last()) {
      fail_run("observer tables: row " + std::to_string(ids[i]) + " is not one of this rank's rows [" +
               std::to_string(first_) + ", " + std::to_string(last()) + ")");
    }
    std::uint32_t& count = counts_[static_cast<std::size_t>(ids[i] - first_)];
    if (count == 0 && counts[i] > 0) ++touched_;
    count = counts[i] > kFull - count ? kFull : count + counts[i];
    accesses_ += counts[i];
  }
}

std::vector<HotRow> RowCounts::hottest(std::size_t most) const {
  std::vector<HotRow> rows;
  const auto hotter = [](const HotRow& a, const HotRow& b) {
    return a.accesses != b.accesses ? a.accesses > b.accesses : a.row < b.row;
  };
  for (std::size_t i = 0; i < counts_.size() && most > 0; ++i) {
    // Rows are visited in ascending order, so a row that ties with the last place does not go before it.
    if (counts_[i] == 0 || (rows.size() == most && counts_[i] <= rows.back().accesses)) continue;
    const HotRow row{first_ + static_cast<std::int64_t>(i), counts_[i]};
    if (rows.size() == most) rows.pop_back();
    rows.insert(std::upper_bound(rows.begin(), rows.end(), row, hotter), row);
  }
  return rows;
}

AccessFacts RowCounts::facts(std::size_t most) const {
  AccessFacts facts{.accesses = accesses_, .touched = touched_, .hottest = hottest(most)};
  std::vector<std::uint32_t> above_zero;
  above_zero.reserve(static_cast<std::size_t>(touched_));
  std::copy_if(counts_.begin(), counts_.end(), std::back_inserter(above_zero),
               [](std::uint32_t count) { return count > 0; });
  facts.share_of_10_percent = share_of_largest(above_zero, (rows() + 9) / 10);
  facts.share_of_1_percent = share_of_largest(above_zero, (rows() + 99) / 100);
  return facts;
}

}  // namespace tenon::tables
