// Anchor and meeting of diloco.hpp.
#include "diloco.hpp"

namespace tenon::sync_local {

void Anchored::start(Replica& replica) {
  outer_.start(replica);
  Centered::start(replica);
}

void Anchored::meet() {
  ParameterSet& live = replica().live();
  outer_.next_round();
  for (const int arena : arenas()) {
    const TensorView x = live.arena(arena), anchor = center().arena(arena);
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
  center().touch(-1);
  live.touch(-1);
}

}  // namespace tenon::sync_local
