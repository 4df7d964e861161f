// Mean and standard deviation of real numbers, and their removal. Values that are no numbers are missing
// ones: they are left out and stay what they are.
#pragma once

#include <tenon/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <span>

namespace tenon::npy {

/// Mean and squared distance from it, one value after the other (Welford 1962): in float64 a far mean costs
/// nothing.
class Moments {
 public:
  /// dtype: f32 or f64.
  void add(DType dtype, std::span<const std::byte> values);
  std::int64_t count() const { return count_; }
  double mean() const { return mean_; }
  /// Of the values as they are: the mean of squares is over their number. 0 for none.
  double deviation() const { return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_)); }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

/// Each value v becomes (v - offset) / scale.
void standardise(DType dtype, std::span<std::byte> values, double offset, double scale);

}  // namespace tenon::npy
