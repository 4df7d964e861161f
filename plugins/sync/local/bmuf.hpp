// Sync `bmuf` (Chen & Huo 2016): blockwise model-update filtering. Replicas train alone for a block; the mean
// of their updates, filtered by a momentum over blocks, moves the global model, from which all continue.
// W_g is the start of a block; with Nesterov it is m D ahead of the model.
#pragma once

#include "rounds.hpp"

#include <tenon/plugin.hpp>

#include <optional>

namespace tenon::sync_local {

class Bmuf final : public Centered {
 public:
  static constexpr OptionSpec kOptions[] = {
      interval_option("50", "slots per block"),
      kWarmup,
      kDrift,
      option::real("momentum", nullptr)
          .between(0, 0.999999)
          .doc_text(
              "m of the block update D = m D + z G; absent: 1 - 1/K for K replicas, the published rule"),
      option::real("step", "1").between(1e-9, 1e3).doc_text("z, the block learning rate"),
      option::boolean("nesterov", "true")
          .doc_text("replicas continue from the look-ahead weights W + m D instead of W"),
      kLocalState,
  };
  static constexpr ComponentInfo kInfo{
      .id = "bmuf",
      .summary = "block-wise model update filtering: local updates, averaged per block with momentum",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "without momentum, at the rate 1, a block's update leads to the mean of the weights",
       .options = "interval = 4\nmomentum = 0.0\nnesterov = false",
       .other = "type = 'local_sgd'\ninterval = 4",
       .given = "run.steps = 8\nprecision.type = 'fp64'",
       .within = 1e-9},
      {.why = "a warm-up that does not end is data-parallel training",
       .options = "warmup = 1000000000",
       .other = "type = 'ddp'"},
  };
  explicit Bmuf(const Options& options);

  void start(Replica& replica) override;

 protected:
  void sync_round() override;

 private:
  std::span<const Identity> identities() const override { return kIdentities; }

  std::optional<double> given_momentum_;
  double momentum_ = 0, step_;
  bool nesterov_;
  ParameterSet* update_ = nullptr;
};

inline Bmuf::Bmuf(const Options& options)
    : Centered("bmuf", "global", options),
      step_(options.real("step")),
      nesterov_(options.boolean("nesterov")) {
  read_local_state(options);
  if (options.has("momentum")) given_momentum_ = options.real("momentum");
}

inline void Bmuf::start(Replica& replica) {
  momentum_ = given_momentum_.value_or(1.0 - 1.0 / replica.replicas());
  update_ = &replica.create_set("block_update");
  Centered::start(replica);
}

inline void Bmuf::sync_round() {
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
