// The map `halo_exchange`: from a rank's part of a tensor to the window of it that its outputs read, with
// zeros where the window reaches beyond the tensor.
#pragma once

#include "moves/linear_map.hpp"
#include "moves/redistribution.hpp"

#include <string>

namespace tenon::comm {

/// The window that the rank at `place` needs for its outputs. Its tensor begins where the window does, pads
/// included.
Need window_at(const MoveSpec& spec, const GridPlace& place);
/// Extents of that tensor.
Shape window_shape(const MoveSpec& spec, const GridPlace& place);

std::string refuse_windows(const MoveSpec& spec);
std::unique_ptr<LinearMap> make_windows(ModelGrid& grid, const MoveSpec& spec);

}  // namespace tenon::comm
