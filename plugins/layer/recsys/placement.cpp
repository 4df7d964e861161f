// Offsets and the greedy balancer.
#include "placement.hpp"

#include <algorithm>
#include <numeric>

namespace tenon::recsys {

std::vector<std::int64_t> even_offsets(std::int64_t rows, int replicas) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t r = 0; r <= replicas; ++r) offsets.push_back(rows * r / replicas);
  return offsets;
}

std::vector<std::int64_t> whole_offsets(std::int64_t rows, int owner, int replicas) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(owner) + 1, 0);
  offsets.resize(static_cast<std::size_t>(replicas) + 1, rows);
  return offsets;
}

std::vector<int> balance(std::span<const std::int64_t> rows, int replicas) {
  const double all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rows[a] > rows[b]; });
  std::vector<double> load(static_cast<std::size_t>(replicas), 0);
  std::vector<int> owner(rows.size());
  for (const std::size_t table : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += static_cast<double>(rows[table]) / all + 1.0 / static_cast<double>(rows.size());
    owner[table] = static_cast<int>(least - load.begin());
  }
  return owner;
}

}  // namespace tenon::recsys
