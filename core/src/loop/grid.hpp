// Who answers for a parameter on the model grid.
#pragma once

#include <tenon/parameter.hpp>

#include <span>

namespace tenon::train {

/// Of all ranks of a replica that hold the same part of a parameter, exactly one: it counts, writes and
/// hashes it.
inline bool is_first_holder(const ParameterSpec& spec, std::span<const int> coordinates) {
  for (std::size_t axis = 0; axis < coordinates.size(); ++axis) {
    if (!is_cut(spec, static_cast<int>(axis)) && coordinates[axis] != 0) return false;
  }
  return true;
}

}  // namespace tenon::train
