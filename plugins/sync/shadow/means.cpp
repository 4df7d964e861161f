// The merges of means.hpp. The mean has the same bits on all trainers, so the copies of g and D stay equal.
#include "means.hpp"

namespace tenon::sync_shadow {

void ShadowMa::start(Replica& replica) {
  Averaging::start(replica);
  if (!takes_part()) return;
  evaluated_ = &replica.create_set("mean");
  replica.copy(replica.live(), *evaluated_);
  if (delta_) keep_snapshots();
}

void ShadowMa::merge(std::size_t index) {
  const TensorView w = weights(arenas()[index]);
  if (delta_) {
    add_difference(mean(index), snapshot(index), w);
  } else {
    pull(weight(), mean(index), w);
  }
}

void ShadowMa::publish() {
  Communicator& group = *replica().group(Purpose::kState);
  for (const int arena : arenas()) {
    const TensorView mean = as_reals(evaluated_->arena(arena));
    replica().device().copy(weights(arena), mean);
    group.all_reduce(mean, ReduceOp::kSum);
    elementwise().scale(mean, 1.0 / group.size());
  }
}

void ShadowBmuf::start(Replica& replica) {
  Averaging::start(replica);
  if (!takes_part()) return;
  global_ = &replica.create_set("global");
  replica.copy(replica.live(), *global_);
  if (momentum_ > 0) update_ = &replica.create_set("block_update");
}

void ShadowBmuf::merge(std::size_t index) {
  const int arena = arenas()[index];
  const TensorView global = as_reals(global_->arena(arena)), d = mean(index);
  elementwise().subtract(d, global, d);
  if (update_ == nullptr) {
    elementwise().axpy(step_, d, global);
  } else {
    const TensorView update = as_reals(update_->arena(arena));
    elementwise().scale(update, momentum_);
    elementwise().axpy(step_, d, update);
    elementwise().axpy(1.0, update, global);
  }
  pull(weight(), global, weights(arena));
}

}  // namespace tenon::sync_shadow
