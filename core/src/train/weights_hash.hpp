// Hash of a parameter set as logical, unsharded tensors: the same for every layout of the model grid.
#pragma once

#include <tenon/device.hpp>
#include <tenon/parameter.hpp>
#include <tenon/transport.hpp>

#include <string>
#include <vector>

namespace tenon::train {

/// Digests for StateHasher::merge on the grid's first rank, "" on the others. Collective over `grid` (null =
/// one rank).
std::string logical_digests(const ParameterSet& set, Device& device, Communicator* grid,
                            const std::vector<std::int64_t>& extents);

}  // namespace tenon::train
