// The rank that answers for a parameter on the model grid.
#pragma once

#include <tenon/parameter.hpp>

#include <span>

namespace tenon::train {

/// True for exactly one of the ranks of a replica that hold the same shard of a parameter: it counts, writes
/// and hashes the shard.
inline bool is_first_holder(const ParameterSpec& spec, std::span<const int> coordinates) {
  for (std::size_t axis = 0; axis < coordinates.size(); ++axis) {
    if (!is_cut(spec, static_cast<int>(axis)) && coordinates[axis] != 0) return false;
  }
  return true;
}

}  // namespace tenon::train
