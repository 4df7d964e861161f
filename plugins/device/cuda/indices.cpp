#include "indices.hpp"

#include "device_common/arguments.hpp"

namespace tenon::cuda {

void check_indices(Queue& queue, const std::int32_t* indices, std::int64_t count, std::int32_t lowest,
                   std::int64_t bound, const char* where, const char* name) {
  const std::int64_t at =
      join_integers(queue, where, count, count, kernels::cuda::OutOfRange{indices, lowest, bound, count},
                    kernels::cuda::Smaller{});
  if (at != count) device_arguments::refuse_index(where, name, at, queue.read(indices + at), lowest, bound);
}

}  // namespace tenon::cuda
