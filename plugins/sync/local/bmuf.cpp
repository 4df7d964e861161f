// The filter of bmuf.hpp. W_g is the start of a block; with Nesterov it is m D ahead of the model.
#include "bmuf.hpp"

namespace tenon::sync_local {

Bmuf::Bmuf(const Options& options)
    : Centered("bmuf", "global", options),
      step_(options.real("step")),
      nesterov_(options.boolean("nesterov")) {
  read_local_state(options);
  if (options.has("momentum")) given_momentum_ = options.real("momentum");
}

void Bmuf::start(Replica& replica) {
  momentum_ = given_momentum_.value_or(1.0 - 1.0 / replica.replicas());
  update_ = &replica.create_set("block_update");
  Centered::start(replica);
}

void Bmuf::meet() {
  for (const int arena : arenas()) {
    const TensorView x = replica().live().arena(arena), global = center().arena(arena);
    const TensorView update = update_->arena(arena);
    average(x);
    elementwise().subtract(x, global, x);  // G, stored in place of the weights
    elementwise().scale(update, momentum_);
    elementwise().axpy(step_, x, update);  // D
    // W_g - m D_old + D = W_g + z G, plus m D to look ahead.
    if (nesterov_) elementwise().axpy(step_, x, global);
    elementwise().axpy(nesterov_ ? momentum_ : 1.0, update, global);
    replica().device().copy(global, x);
  }
  center().touch(-1);
  replica().live().touch(-1);
}

}  // namespace tenon::sync_local
