// Anchor and synchronisation round of diloco.hpp.
#include "diloco.hpp"

namespace tenon::sync_local {

void Anchored::start(Replica& replica) {
  outer_.start(replica);
  Centered::start(replica);
  if (reducer_ == nullptr) return;
  if (outer_.assigns()) {
    fail_config("sync " + std::string(name()) +
                ": outer = \"sgd\" with outer_lr = 1 and outer_momentum = 0 averages the weights themselves, "
                "and weights "
                "cannot travel compressed; choose another outer step, or no compression");
  }
  std::vector<MeanPart> parts;
  for (const int arena : arenas()) parts.push_back({arena, 0, replica.live().arena(arena)});
  reducer_->prepare(replica, Purpose::kParameter, parts);
}

void Anchored::meet() {
  ParameterSet& live = replica().live();
  ++rounds_;
  for (std::size_t i = 0; i < arenas().size(); ++i) {
    const TensorView x = live.arena(arenas()[i]), anchor = center().arena(arenas()[i]);
    if (outer_.assigns()) {
      average(x);
      replica().device().copy(x, anchor);
      continue;
    }
    elementwise().subtract(anchor, x, x);  // the pseudo-gradient, stored in place of the weights
    if (reducer_ != nullptr)
      reducer_->add(i, 1);
    else
      average(x);
  }
  if (reducer_ != nullptr) reducer_->finish();
  for (const int arena : arenas()) {
    if (outer_.assigns()) break;
    const TensorView x = live.arena(arena), anchor = center().arena(arena);
    outer_.step(arena, 0, anchor, x, rounds_);
    replica().device().copy(anchor, x);
  }
  center().touch(-1);
  live.touch(-1);
}

}  // namespace tenon::sync_local
