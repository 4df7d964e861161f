// The components of a conformance run that no plugin ships: data of any shape, a loss that takes any values,
// and an observer that ends the run or opens the windows in which allocations are counted.
#pragma once

#include <tenon/plugin.hpp>

namespace tenon::conformance {

/// Plugin `tenon.conformance`:
///   dataset conformance_data      fields = ["x:real:8", "ids:i32:4:10"] (name, dtype, shape per sample,
///   numbers below),
///                                 attributes = ["vocabulary=10"], batch, planted (the last real field
///                                 follows the first)
///   layer   conformance_absorb    a loss of any number of values whose first extent is the batch
///   model   conformance_net       two linear layers with GELU and a squared error on fields x, t
///   model   conformance_anything  conformance_absorb of all fields
///   observer conformance_ending   stops or kills the run after `slots`, opens windows of the allocation
///   watch
///   sync, precision      sync_watch.hpp
const tenon_plugin_v1_t& world_plugin();

}  // namespace tenon::conformance
