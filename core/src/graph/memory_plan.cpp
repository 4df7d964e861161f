// Greedy placement: large buffers first, each at the lowest offset that is free throughout its life.
#include "graph/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace tenon::graph {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool alive_together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

std::size_t place(std::vector<Lifetime>& buffers) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (buffers[a].bytes != buffers[b].bytes) return buffers[a].bytes > buffers[b].bytes;
    return buffers[a].first < buffers[b].first;
  });

  std::size_t total = 0;
  std::vector<const Lifetime*> placed;
  for (std::size_t index : order) {
    Lifetime& buffer = buffers[index];
    std::vector<const Lifetime*> neighbours;
    for (const Lifetime* other : placed) {
      if (other->bytes > 0 && alive_together(*other, buffer)) neighbours.push_back(other);
    }
    std::sort(neighbours.begin(), neighbours.end(),
              [](const Lifetime* a, const Lifetime* b) { return a->offset < b->offset; });
    std::size_t offset = 0;
    for (const Lifetime* other : neighbours) {
      if (offset + aligned(buffer.bytes) <= other->offset) break;
      offset = std::max(offset, other->offset + aligned(other->bytes));
    }
    buffer.offset = offset;
    total = std::max(total, offset + aligned(buffer.bytes));
    placed.push_back(&buffer);
  }
  return total;
}

}  // namespace tenon::graph
