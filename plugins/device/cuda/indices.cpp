#include "indices.hpp"

#include <tenon/error.hpp>

#include <string>

namespace tenon::cuda {

void check_indices(Queue& queue, const std::int32_t* indices, std::int64_t count, std::int32_t lowest,
                   std::int64_t bound, const char* where, const char* name) {
  const std::int64_t at =
      join_integers(queue, where, count, count, kernels::cuda::OutOfRange{indices, lowest, bound, count},
                    kernels::cuda::Smaller{});
  if (at == count) return;
  fail_run(std::string("device ") + kDeviceName + ": " + where + ": " + name + "[" + std::to_string(at) +
           "] is " + std::to_string(queue.read(indices + at)) + ", expected less than " +
           std::to_string(bound) + (lowest == 0 ? " and not negative" : ""));
}

}  // namespace tenon::cuda
