// Host side of maps over sets, shared by batch normalisation and the normalisation of shards.
#pragma once

#include "column_sums.hpp"

#include <string>

namespace tenon::cuda {

/// y[i] = map of element i, its set and its place.
template <class S, class Map>
void map_sets(Queue& queue, const char* where, const kernels::cuda::Sets& of, S* y, const Map& map) {
  using Body = kernels::cuda::MapSets<S, Map>;
  if (of.elements() > 0) queue.launch(where, Body::grid(of.elements()), Body{of, y, map});
}

}  // namespace tenon::cuda
