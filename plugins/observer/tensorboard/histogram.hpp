// A histogram in TensorBoard's form: bucket i counts values up to limit i; limits grow by 10 % from 1e-12 to
// 1e20 on both sides of zero. They equal those of TensorFlow's summaries, so that curves of both are
// comparable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::tensorboard {

class Histogram {
 public:
  Histogram();
  void clear();
  /// Non-finite values are counted separately: a bucket for them would stretch the axis.
  void add(double value);

  double min() const { return min_; }
  double max() const { return max_; }
  double count() const { return count_; }
  double sum() const { return sum_; }
  double sum_of_squares() const { return squares_; }
  std::int64_t not_finite() const { return not_finite_; }
  /// Return limits and counts without the empty ends; valid until the next change.
  std::span<const double> limits() const;
  std::span<const double> counts() const;

 private:
  std::vector<double> limits_, counts_;
  std::size_t first_, last_;  ///< buckets in use: [first, last)
  double min_, max_, count_, sum_, squares_;
  std::int64_t not_finite_;
};

}  // namespace tenon::tensorboard
