// Searches for the first element with a property, and the check of indices that uses them. Both wait for the
// device.
#pragma once

#include "queue.hpp"

#include <tenon/kernels/cuda/reduce.hpp>

#include <algorithm>
#include <vector>

namespace tenon::cuda {

/// Reduces value(i), i in [0, n), by join, starting from `none`.
template <class Value, class Join>
std::int64_t join_integers(Queue& queue, const char* where, std::int64_t n, std::int64_t none,
                           const Value& value, Join join) {
  if (n == 0) return none;
  const Grid grid = grid_for(n, kernels::cuda::kThreads * sizeof(std::int64_t));
  auto* const partial = queue.scratch<std::int64_t>();
  queue.launch(where, grid, kernels::cuda::JoinIntegers<Value, Join>{n, none, value, join, partial});
  std::vector<std::int64_t> found(static_cast<std::size_t>(grid.blocks));
  queue.copy(partial, MemorySpace::kCuda, found.data(), MemorySpace::kHost,
             found.size() * sizeof(std::int64_t));
  for (const std::int64_t one : found) none = join(none, one);
  return none;
}

/// Throws Error(kRun) that names the first of `count` indices outside [lowest, bound).
void check_indices(Queue& queue, const std::int32_t* indices, std::int64_t count, std::int32_t lowest,
                   std::int64_t bound, const char* where, const char* name);

}  // namespace tenon::cuda
