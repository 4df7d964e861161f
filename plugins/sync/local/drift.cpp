// Reductions of drift.hpp. Nothing here touches a weight.
#include "drift.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::sync_local {

Drift::Drift(Replica& replica, std::vector<int> arenas) : replica_(replica), arenas_(std::move(arenas)) {
  for (const int arena : arenas_)
    bytes_ = std::max(bytes_, static_cast<std::size_t>(replica.live().arena(arena).bytes()));
  for (void*& room : room_) room = replica.device().allocate(bytes_);
}

Drift::~Drift() {
  for (void* room : room_) replica_.device().release(room, bytes_);
}

TensorView Drift::scratch(int index, const TensorView& like) const {
  TensorView view = like;
  view.data = room_[index];
  return view;
}

void Drift::measure() {
  Communicator* group = replica_.group(Purpose::kStatistics);
  if (group == nullptr || group->size() == 1) return;
  Device& device = replica_.device();
  Elementwise& maps = device.family<Elementwise>();
  ReduceOps& reduce = device.family<ReduceOps>();
  double distance = 0, length = 0, spread = 0;
  for (const int arena : arenas_) {
    const TensorView weights = replica_.live().arena(arena);
    const TensorView a = scratch(0, weights), b = scratch(1, weights);
    device.copy(weights, a);
    group->all_reduce(a, ReduceOp::kSum);
    maps.scale(a, 1.0 / group->size());
    length += reduce.sum_of_squares(a);
    maps.subtract(weights, a, b);
    distance += reduce.sum_of_squares(b);
    device.copy(weights, a);
    device.copy(weights, b);
    group->all_reduce(a, ReduceOp::kMax);
    group->all_reduce(b, ReduceOp::kMin);
    maps.subtract(a, b, a);
    spread = std::max(spread, reduce.absolute_max(a));
  }
  // Zero weights have no scale for comparison.
  if (length > 0) replica_.record("replica_drift", std::sqrt(distance / length));
  replica_.record("replica_spread", spread);
}

}  // namespace tenon::sync_local
