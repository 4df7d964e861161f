// Code that is the same in every kernel set: the sum of block sums, the check of indices.
#include <tenon/kernels/reduce.hpp>

namespace tenon::kernels {

double pairwise_sum(const double* values, std::int64_t n) {
  if (n <= 2) return n == 0 ? 0.0 : n == 1 ? values[0] : values[0] + values[1];
  const std::int64_t half = (n + 1) / 2;
  return pairwise_sum(values, half) + pairwise_sum(values + half, n - half);
}

std::int64_t first_bad_index(const std::int32_t* indices, std::int64_t n, std::int32_t lowest,
                             std::int64_t bound) {
  for (std::int64_t i = 0; i < n; ++i)
    if (indices[i] < lowest || indices[i] >= bound) return i;
  return -1;
}

}  // namespace tenon::kernels
