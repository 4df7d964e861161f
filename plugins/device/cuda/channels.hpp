// Channels of images as the sets of part_norm.hpp, all of whose elements are here.
#pragma once

#include "arguments.hpp"
#include "sets.hpp"
#include "temporary.hpp"

#include <tenon/kernels/cuda/elementwise.hpp>

namespace tenon::cuda {

/// x [batch, channels, ...] as sets.
inline kernels::cuda::Sets channels_of(const TensorView& x, const char* where) {
  if (x.shape.rank() < 2) {
    fail_run(std::string("device ") + kDeviceName + ": " + where +
             ": x must be [batch, channels, ...], found " + x.shape.text());
  }
  const std::int64_t both = x.shape[0] * x.shape[1];
  return {x.shape[0], x.shape[1], both == 0 ? 0 : x.elements() / both};
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
