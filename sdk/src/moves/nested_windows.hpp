// The map `halo_exchange_nested`: the windows of `halo_exchange` where none reaches beyond a neighbour's
// part, one dimension after another. A corner comes by way of the neighbours that both share, so a rank sends
// two messages for each dimension that is cut, not one to each of its 3^D - 1 neighbours; the price is a
// round for each dimension, which nothing overlaps but the first (the classical scheme of Hewett, Grady
// 2020).
#pragma once

#include "moves/linear_map.hpp"

#include <span>
#include <string>

namespace tenon::comm {

/// Also where a dimension is cut over other axes behind than before. Ranks without outputs, and windows that
/// pads fill, are no obstacle: nothing is asked for them.
std::string refuse_nested_windows(const MoveSpec& spec, std::span<const int> grid);
/// Windows have the bits of `halo_exchange`. In the adjoint the sums are made dimension by dimension, the
/// last first, and within one in ascending order of ranks: another fixed order than that of `halo_exchange`.
std::unique_ptr<LinearMap> make_nested_windows(ModelGrid& grid, const MoveSpec& spec);

}  // namespace tenon::comm
