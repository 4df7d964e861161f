// Buckets of histogram.hpp.
#include "histogram.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::tensorboard {

Histogram::Histogram() {
  constexpr double kMost = std::numeric_limits<double>::max();
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  limits_.push_back(-kMost);
  for (std::size_t i = positive.size(); i-- > 0;) limits_.push_back(-positive[i]);
  limits_.push_back(0);
  limits_.insert(limits_.end(), positive.begin(), positive.end());
  limits_.push_back(kMost);
  counts_.assign(limits_.size(), 0);
  clear();
}

void Histogram::clear() {
  std::fill(counts_.begin(), counts_.end(), 0.0);
  first_ = counts_.size();
  last_ = 0;
  min_ = std::numeric_limits<double>::infinity();
  max_ = -min_;
  count_ = sum_ = squares_ = 0;
  not_finite_ = 0;
}

void Histogram::add(double value) {
  if (!std::isfinite(value)) {
    ++not_finite_;
    return;
  }
  const auto bucket =
      static_cast<std::size_t>(std::lower_bound(limits_.begin(), limits_.end(), value) - limits_.begin());
  counts_[bucket] += 1;
  first_ = std::min(first_, bucket);
  last_ = std::max(last_, bucket + 1);
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  count_ += 1;
  sum_ += value;
  squares_ += value * value;
}

// One empty bucket before the first used one marks where that one begins.
std::span<const double> Histogram::limits() const {
  if (count_ == 0) return {};
  const std::size_t first = first_ == 0 ? 0 : first_ - 1;
  return {limits_.data() + first, last_ - first};
}

std::span<const double> Histogram::counts() const {
  if (count_ == 0) return {};
  const std::size_t first = first_ == 0 ? 0 : first_ - 1;
  return {counts_.data() + first, last_ - first};
}

}  // namespace tenon::tensorboard
