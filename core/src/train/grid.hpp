// Arithmetic of the model grid: positions are row-major over its axes.
#pragma once

#include <tenon/parameter.hpp>

#include <cstdint>
#include <vector>

namespace tenon::train {

inline std::vector<int> grid_coordinates(int position, const std::vector<std::int64_t>& grid) {
  std::vector<int> coordinates(grid.size());
  for (std::size_t axis = grid.size(); axis-- > 0;) {
    coordinates[axis] = static_cast<int>(position % grid[axis]);
    position /= static_cast<int>(grid[axis]);
  }
  return coordinates;
}

inline int grid_position(const std::vector<int>& coordinates, const std::vector<std::int64_t>& grid) {
  std::int64_t position = 0;
  for (std::size_t axis = 0; axis < grid.size(); ++axis) position = position * grid[axis] + coordinates[axis];
  return static_cast<int>(position);
}

/// Of all ranks of a replica that hold the same part of a parameter, exactly one: it counts, writes and
/// hashes it.
inline bool is_first_holder(const ParameterSpec& spec, const std::vector<int>& coordinates) {
  for (std::size_t axis = 0; axis < coordinates.size(); ++axis) {
    bool cut = false;
    for (const DimSharding& sharding : spec.sharding) cut |= sharding.axis == static_cast<int>(axis);
    if (!cut && coordinates[axis] != 0) return false;
  }
  return true;
}

}  // namespace tenon::train
