// Folding of pointwise layers into the sites that produce their input.
#pragma once

#include "graph/graph_build.hpp"

namespace tenon::graph {

/// Marks the nodes whose offered map the producing sites can apply, and gives those sites the map. Call it
/// when the nodes that run backward are known, and before sites are bound.
void fold_epilogues(Build& build);

}  // namespace tenon::graph
