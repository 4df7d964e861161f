// Drift of the replicas, whose measurement touches no weight, and the round.
#include "rounds.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/sync_extra.hpp>

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
  if (length > 0) record_metric(replica_.host(), "replica_drift", std::sqrt(distance / length));
  record_metric(replica_.host(), "replica_spread", spread);
}

void Rounds::start(Replica& replica) {
  SyncBase::start(replica);
  elementwise_ = &replica.device().family<Elementwise>();
  mean_.start(replica);
  group_ = replica.group(Purpose::kParameter);
  refuse_copied_tables(replica, name_);
  for (const ParameterInfo& info : replica.live().parameters()) {
    if (info.arena < 0 || info.spec.role != Role::kParameter || !info.spec.trainable) continue;
    if (std::find(arenas_.begin(), arenas_.end(), info.arena) == arenas_.end()) arenas_.push_back(info.arena);
  }
  std::sort(arenas_.begin(), arenas_.end());
  if (measures_drift_) drift_ = std::make_unique<Drift>(replica, arenas_);
  if (warmup_ == 0) part();
}

void Rounds::part() {
  begin();
  parted_ = 1;
}

void Rounds::on_gradients_ready(const Bucket& bucket) {
  if (replica().slot() < warmup_) mean_.add(bucket);
}

void Rounds::after_step(const Slot& slot, const StepOutcome& outcome) {
  const std::int64_t done = slot.t + 1;
  if (done <= warmup_) {
    if (outcome.applied) replica().sync_buffers();
    if (done == warmup_) part();
    return;
  }
  between(slot, outcome);
  if (done % interval_ != 0) return;
  if (drift_ != nullptr) drift_->measure();
  sync_round();
  apply_local_state();
  replica().sync_buffers();
  settled();
}

void Rounds::read_local_state(const Options& options) {
  local_state_ = options.choice("local_state", kLocalStates);
}

void Rounds::apply_local_state() {
  if (local_state_ == LocalState::kKeep) return;
  for (ParameterSet* state : replica().optimizer_state()) {
    for (const int arena : arenas_) {
      if (local_state_ == LocalState::kReset)
        elementwise_->fill(state->arena(arena), 0);
      else
        average(state->arena(arena));
    }
    state->touch(-1);
  }
}

void Rounds::sum(TensorView data) {
  if (group_ != nullptr && group_->size() > 1) group_->all_reduce(data, ReduceOp::kSum);
}

void Rounds::average(TensorView data) {
  if (group_ == nullptr || group_->size() == 1) return;
  sum(data);
  elementwise_->scale(data, 1.0 / group_->size());
}

void Rounds::average_weights() {
  ParameterSet& live = replica().live();
  for (const int arena : arenas_) average(live.arena(arena));
  live.touch(-1);
}

void Centered::start(Replica& replica) {
  center_ = &replica.create_set(center_name_);
  Rounds::start(replica);
}

ParameterSet& Centered::evaluation_parameters() {
  return parted() ? *center_ : replica().live();
}

void Centered::settled() {
  const ParameterSet& live = replica().live();
  for (const ParameterInfo& info : live.parameters()) {
    if (info.spec.role != Role::kBuffer || live.tensor(info.index).empty()) continue;
    replica().device().copy(live.tensor(info.index), center_->tensor(info.index));
    center_->touch(info.index);
  }
}

void Centered::begin() {
  if (warmup() > 0) average_weights();
  replica().copy(replica().live(), *center_);
}

}  // namespace tenon::sync_local
