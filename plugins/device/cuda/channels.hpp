// Channels of images as the sets of part_norm.hpp, with all elements on this rank.
#pragma once

#include "arguments.hpp"
#include "device_common/norms.hpp"
#include "sets.hpp"
#include "temporary.hpp"

#include <tenon/kernels/cuda/elementwise.hpp>

namespace tenon::cuda {

/// x [batch, channels, ...] as sets.
inline kernels::cuda::Sets channels_of(const TensorView& x, const char* where) {
  const auto [outer, sets, inner] = device_arguments::channels_as_sets(x, where);
  return {outer, sets, inner};
}

/// parameters (+)= sums, of `count` sets.
template <class A>
void sums_to_parameters(Queue& queue, const char* where, const double* sums, A* parameters,
                        std::int64_t count, bool accumulate) {
  using Map = kernels::cuda::SumsAsParameters<A>;
  queue.launch(
      where, grid_for(count),
      kernels::cuda::MapElements<A, Map>{parameters, count, Map{sums, accumulate ? parameters : nullptr}});
}

}  // namespace tenon::cuda
