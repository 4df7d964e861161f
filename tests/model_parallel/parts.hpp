// Results of a graph, tensor by tensor, against those of one rank, and the part of them that a rank of a mesh
// should have.
#pragma once

#include "cases.hpp"

#include <tenon/parameter.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace model_parallel {

using tenon::ParameterInfo;

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

/// This rank's part of a global tensor.
inline std::vector<double> part_of_values(const std::vector<double>& values, const ParameterInfo& info) {
  std::vector<double> out;
  each_element({info.offset, info.local}, [&](const std::vector<std::int64_t>& at, std::int64_t) {
    out.push_back(values[flat_index(at, info.spec.shape)]);
  });
  return out;
}

/// `whole` with this rank's parts of parameters, by their names, and of their gradients, "d NAME".
inline Results here(Results whole, std::span<const ParameterInfo> parameters) {
  for (const ParameterInfo& info : parameters) {
    for (const std::string& name : {info.spec.name, "d " + info.spec.name}) {
      const auto found = whole.find(name);
      if (found == whole.end()) continue;  // buffers have no gradient
      if (info.local.elements() == 0) {
        whole.erase(found);
      } else {
        found->second = part_of_values(found->second, info);
      }
    }
  }
  return whole;
}

}  // namespace model_parallel
