// Sync `diloco` (Douillard et al. 2023): replicas train alone for a round; then one all-reduce of the
// pseudo-gradient, g = mean(anchor - x), and a step of an outer optimizer on the anchor, from which all
// continue.
#pragma once

#include "rounds.hpp"

#include <tenon/plugin.hpp>
#include <tenon/sdk/outer_update.hpp>
#include <tenon/state.hpp>
#include <tenon/sync_extra.hpp>

namespace tenon::sync_local {

/// Synchronisation round of DiLoCo and PALSGD.
class Anchored : public Centered, private MeanUser {
 public:
  Anchored(const char* name, const Options& options) : Centered(name, "anchor", options), outer_(options) {}
  void start(Replica& replica) override;
  void state(StateVisitor& visitor) override {
    Centered::state(visitor);
    visitor.integer("rounds", rounds_);
  }
  void* query(std::string_view id) override {
    return id == MeanUser::kId ? static_cast<MeanUser*>(this) : Centered::query(id);
  }

 protected:
  void sync_round() override;

 private:
  /// The pseudo-gradient may be sent compressed; gradients of a warm-up and its last average are not.
  void take_means_by(MeanReducer& reducer) override { reducer_ = &reducer; }

  OuterUpdate outer_;
  std::int64_t rounds_ = 0;
  MeanReducer* reducer_ = nullptr;
};

class Diloco final : public Anchored {
 public:
  static constexpr OptionSpec kOptions[] = {interval_option("100", "slots per sync round; the paper: 500"),
                                            kWarmup,
                                            kDrift,
                                            kOuterRule,
                                            outer_lr_option("0.7"),
                                            kOuterMomentum,
                                            kOuterBetas,
                                            kOuterEps,
                                            kLocalState};
  static constexpr ComponentInfo kInfo{
      .id = "diloco",
      .summary = "rounds of local updates; an outer optimizer applies their mean",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "an outer step of gradient descent at the rate 1 assigns the mean of the weights",
       .options = "interval = 4\nouter = 'sgd'\nouter_lr = 1.0\nouter_momentum = 0.0",
       .other = "type = 'local_sgd'\ninterval = 4",
       .given = "run.steps = 8"},
      {.why = "a warm-up that does not end is data-parallel training",
       .options = "warmup = 1000000000",
       .other = "type = 'ddp'"},
  };
  explicit Diloco(const Options& options) : Anchored("diloco", options) { read_local_state(options); }

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

inline void Anchored::start(Replica& replica) {
  outer_.start(replica);
  Centered::start(replica);
  if (reducer_ == nullptr) return;
  if (outer_.assigns()) {
    fail_config("sync " + std::string(name()) +
                ": outer = \"sgd\" with outer_lr = 1 and outer_momentum = 0 averages the weights themselves, "
                "and weights cannot be sent compressed; choose another outer step, or no compression");
  }
  std::vector<MeanPart> parts;
  for (const int arena : arenas()) parts.push_back({arena, 0, replica.live().arena(arena)});
  reducer_->prepare(replica, Purpose::kParameter, parts);
}

inline void Anchored::sync_round() {
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
