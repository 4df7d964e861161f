// Exact reuse distances of a stream of row accesses, which give the hits of a cache of any size; and the
// share that the most frequent rows have under a power law.
#pragma once

#include <tenon/error.hpp>

#include <cstdint>
#include <span>
#include <vector>

TENON_ABI_BEGIN

/// The reuse distance of an access is the number of different other rows since the same row was accessed
/// last. A cache of n lines that gives up the row used longest ago hits exactly the accesses of a distance
/// below n, so one pass over a stream gives the hits at every size.
/// Takes 28 bytes per row of the table, and time O(log rows) per access. One thread at a time.
class ReuseDistances {
 public:
  static constexpr std::int64_t kFirst = -1;

  /// For rows 0 ... rows - 1, below 2^31. Throws Error(kConfig) for other numbers.
  explicit ReuseDistances(std::int64_t rows);
  /// Returns the distance; kFirst at the first access of a row. Throws Error(kRun) for another row.
  std::int64_t access(std::int64_t row);

  std::int64_t accesses() const { return accesses_; }
  /// Accesses of distance 0, 1, ... up to the largest that occurred. First accesses are in none.
  std::span<const std::int64_t> histogram() const { return histogram_; }
  /// Hits of a cache of so many lines, for each of these sizes.
  std::vector<std::int64_t> hits(std::span<const std::int64_t> lines) const;

 private:
  void renumber();
  void change(std::uint32_t time, std::int32_t by);
  std::int64_t count_until(std::uint32_t time) const;

  std::int64_t accesses_ = 0, distinct_ = 0;
  std::uint32_t now_ = 0;
  std::vector<std::uint32_t> last_;    ///< time of a row's last access; 0: none
  std::vector<std::uint32_t> row_at_;  ///< row of a time
  std::vector<std::int32_t> tree_;     ///< Fenwick tree over times: 1 where a row was accessed last
  std::vector<std::int64_t> histogram_;
};

/// Share of the accesses that name one of the `first` most frequent of `rows` rows, where the k-th is
/// accessed in proportion to the integral of x^-exponent over [k, k + 1): about k^-exponent. An ideal cache
/// of `first` lines that keeps the rows used most hits so many. Throws Error(kConfig) unless 0 <= first <=
/// rows, rows >= 1 and exponent >= 0.
double power_law_share(std::int64_t rows, std::int64_t first, double exponent);

TENON_ABI_END
