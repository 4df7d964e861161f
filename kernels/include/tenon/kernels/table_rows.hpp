// Sums over rows of tables, in one order on every device.
#pragma once

#include <tenon/kernels/types.hpp>

#include <cstdint>

namespace tenon::kernels {

/// Sum of (scale x)^2 in eight partial sums, so that vector registers add in the order of this loop.
template <class T>
TENON_BOTH T sum_of_squares(const T* x, T scale, std::int64_t n) {
  constexpr std::int64_t kSums = 8;
  T lane[kSums] = {};
  const std::int64_t whole = n - n % kSums;
  for (std::int64_t i = 0; i < whole; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) {
      const T value = scale * x[i + j];
      lane[j] += value * value;
    }
  }
  for (std::int64_t i = whole; i < n; ++i) {
    const T value = scale * x[i];
    lane[i - whole] += value * value;
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/// One column of the sum, or the mean, of a bag's rows in the order of its ids. The first row is copied, so a
/// bag of one row has its bits.
template <class T>
TENON_BOTH T pooled_column(const T* table, std::int64_t width, std::int64_t column, const std::int32_t* ids,
                           std::int64_t length, bool mean) {
  T sum = 0;
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    if (ids[i] < 0) continue;
    const T value = table[ids[i] * width + column];
    sum = rows == 0 ? value : sum + value;
    ++rows;
  }
  return mean && rows > 1 ? sum / static_cast<T>(rows) : sum;
}

}  // namespace tenon::kernels
