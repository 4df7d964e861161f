// The round of rounds.hpp.
#include "rounds.hpp"

#include <tenon/error.hpp>
#include <tenon/sync_extra.hpp>

#include <algorithm>

namespace tenon::sync_local {

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
  meet();
  settle_local_state();
  replica().sync_buffers();
  settled();
}

void Rounds::read_local_state(const Options& options) {
  local_state_ = options.choice("local_state", kLocalStates);
}

void Rounds::settle_local_state() {
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
