// Results of a graph, tensor by tensor, against those of one rank.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace model_parallel {

using Results = std::map<std::string, std::vector<double>>;

/// Expects that each tensor's largest difference, relative to its largest element, is within `tolerance`.
/// Infinite values (the greatest of pads alone) must be equal.
inline void expect_close(const Results& found, const Results& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(found.at(name).size(), values.size()) << name << " of " << what;
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isinf(values[i]) && found.at(name)[i] == values[i]) continue;
      const double difference = std::abs(found.at(name)[i] - values[i]);
      most = std::isnan(difference) ? difference : std::max(most, difference);
      largest = std::max(largest, std::abs(values[i]));
    }
    EXPECT_LE(most, tolerance * largest) << name << " of " << what;
  }
}

}  // namespace model_parallel
