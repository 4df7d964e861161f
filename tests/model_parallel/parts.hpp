// The part of one rank's results that a rank of a grid should have.
#pragma once

#include "cases.hpp"
#include "results.hpp"

#include <tenon/parameter.hpp>

#include <span>

namespace model_parallel {

using tenon::ParameterInfo;

/// This rank's part of a global tensor.
inline std::vector<double> part_of_values(const std::vector<double>& values, const ParameterInfo& info) {
  std::vector<double> out;
  each_element({info.offset, info.local}, [&](const std::vector<std::int64_t>& at, std::int64_t) {
    out.push_back(values[static_cast<std::size_t>(flat_index(at, info.spec.shape))]);
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
