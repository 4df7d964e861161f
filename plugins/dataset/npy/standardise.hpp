// Mean and standard deviation of real numbers, and their removal. NaN values count as missing: they are left
// out and stay as they are.
#pragma once

#include <tenon/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <span>

namespace tenon::npy {

/// Mean and sum of squared distances from it, updated value by value (Welford 1962); in float64 a large mean
/// costs no accuracy.
class Moments {
 public:
  /// dtype: f32 or f64.
  void add(DType dtype, std::span<const std::byte> values);
  std::int64_t count() const { return count_; }
  double mean() const { return mean_; }
  /// Returns the population deviation: the squares are divided by the number of values. 0 for none.
  double deviation() const { return count_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(count_)); }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

/// Each value v becomes (v - offset) / scale.
void standardise(DType dtype, std::span<std::byte> values, double offset, double scale);

}  // namespace tenon::npy
