// Anchor and meeting of diloco.hpp.
#include "diloco.hpp"

namespace tenon::sync_local {

void Anchored::start(Replica& replica) {
  anchor_ = &replica.create_set("anchor");
  outer_.start(replica);
  Rounds::start(replica);
}

ParameterSet& Anchored::evaluation_parameters() {
  return parted() ? *anchor_ : replica().live();
}

void Anchored::begin() {
  // After a warm-up the replicas are equal; the paper's average at this point is kept, and counted.
  if (warmup() > 0) average_weights();
  replica().copy(replica().live(), *anchor_);
}

void Anchored::meet() {
  ParameterSet& live = replica().live();
  outer_.next_round();
  for (const int arena : arenas()) {
    const TensorView x = live.arena(arena), anchor = anchor_->arena(arena);
    if (outer_.assigns()) {
      average(x);
      replica().device().copy(x, anchor);
      continue;
    }
    elementwise().subtract(anchor, x, x);  // the way back, where the weights were
    average(x);
    outer_.step(arena, anchor, x);
    replica().device().copy(anchor, x);
  }
  anchor_->touch(-1);
  live.touch(-1);
}

}  // namespace tenon::sync_local
