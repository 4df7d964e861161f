// The map `halo_exchange`: from a rank's part of a tensor to the window of it that its outputs read, zeros
// where the window reaches beyond the tensor.
#pragma once

#include "comm/linear_map.hpp"

#include <string>
#include <vector>

namespace tenon::comm {

/// One per dimension, for the rank at `place`.
std::vector<DimWindow> windows_at(const MoveSpec& spec, const GridPlace& place);

std::string refuse_windows(const MoveSpec& spec);
std::unique_ptr<LinearMap> make_windows(ModelGrid& grid, const MoveSpec& spec);

}  // namespace tenon::comm
