#include <tenon/sdk/reuse_distance.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

TENON_ABI_BEGIN

namespace {

/// Integral of x^-exponent from 1 to `end`, also near exponent 1, where the quotient loses its digits.
double power_law_mass(double end, double exponent) {
  const double log_end = std::log(end), rate = (1 - exponent) * log_end;
  return rate == 0 ? log_end : log_end * std::expm1(rate) / rate;
}

}  // namespace

// Only the last access of each row has a time that counts, so times are renumbered once there are no more of
// them: at most `rows` remain, and as many accesses pay for it.
ReuseDistances::ReuseDistances(std::int64_t rows) {
  constexpr std::int64_t kMostRows = (std::int64_t{1} << 31) - 1;
  if (rows < 0 || rows > kMostRows) {
    fail_config(fmt::format("reuse distances of {} rows: expected 0 ... {}", rows, kMostRows));
  }
  last_.resize(rows);
  row_at_.resize(2 * rows + 1);
  tree_.resize(2 * rows + 1);
}

std::int64_t ReuseDistances::access(std::int64_t row) {
  if (row < 0 || row >= static_cast<std::int64_t>(last_.size())) {
    fail_run(fmt::format("reuse distances: row {} is not one of the {} rows", row, last_.size()));
  }
  if (now_ + 1 == tree_.size()) renumber();
  ++accesses_;
  std::uint32_t& last = last_[row];
  std::int64_t distance = kFirst;
  if (last != 0) {
    distance = distinct_ - count_until(last);
    if (distance >= static_cast<std::int64_t>(histogram_.size())) histogram_.resize(distance + 1);
    ++histogram_[distance];
    change(last, -1);
  } else {
    ++distinct_;
  }
  last = ++now_;
  row_at_[now_] = static_cast<std::uint32_t>(row);
  change(now_, 1);
  return distance;
}

std::vector<std::int64_t> ReuseDistances::hits(std::span<const std::int64_t> lines) const {
  std::vector<std::int64_t> below(histogram_.size() + 1);
  for (std::size_t i = 0; i < histogram_.size(); ++i) below[i + 1] = below[i] + histogram_[i];
  std::vector<std::int64_t> hits;
  hits.reserve(lines.size());
  for (const std::int64_t each : lines)
    hits.push_back(below[std::clamp<std::int64_t>(each, 0, static_cast<std::int64_t>(histogram_.size()))]);
  return hits;
}

void ReuseDistances::renumber() {
  std::uint32_t kept = 0;
  for (std::uint32_t time = 1; time <= now_; ++time) {
    const std::uint32_t row = row_at_[time];
    if (last_[row] != time) continue;
    last_[row] = ++kept;
    row_at_[kept] = row;
  }
  now_ = kept;
  // Each node counts its own range: (time - lowest bit of time, time], of which times up to `kept` are in
  // use.
  for (std::uint32_t time = 1; time < tree_.size(); ++time) {
    const std::uint32_t begin = time - (time & (0U - time));
    tree_[time] = static_cast<std::int32_t>(std::min(time, kept) - std::min(begin, kept));
  }
}

void ReuseDistances::change(std::uint32_t time, std::int32_t by) {
  for (std::size_t at = time; at < tree_.size(); at += at & (0 - at)) tree_[at] += by;
}

std::int64_t ReuseDistances::count_until(std::uint32_t time) const {
  std::int64_t count = 0;
  for (std::uint32_t at = time; at != 0; at &= at - 1) count += tree_[at];
  return count;
}

double power_law_share(std::int64_t rows, std::int64_t first, double exponent) {
  if (rows < 1 || first < 0 || first > rows || !(exponent >= 0)) {
    fail_config(
        fmt::format("share of the {} most frequent of {} rows under a power law of exponent {}: expected 0 "
                    "<= first <= rows, "
                    "at least one row and an exponent of at least 0",
                    first, rows, exponent));
  }
  return power_law_mass(static_cast<double>(first) + 1, exponent) /
         power_law_mass(static_cast<double>(rows) + 1, exponent);
}

TENON_ABI_END
