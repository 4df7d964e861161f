// The plugin `tenon.sync_shadow`: components `shadow_ma` and `shadow_bmuf`, whole, and `shadow_easgd` of
// easgd.hpp.
#include "averaging.hpp"
#include "easgd.hpp"

namespace tenon::sync_shadow {

// Syncs `shadow_ma` (S-MA, FR-MA) and `shadow_bmuf` (S-BMUF, FR-BMUF; Zheng et al. 2020, Chen & Huo 2016).
// The mean has the same bits on all trainers, so the copies of g and D stay equal.

inline constexpr const char* kMerges[] = {"lerp", "delta", nullptr};

class ShadowMa final : public Averaging {
 public:
  static constexpr OptionSpec kOptions[] = {
      kMode,
      kInterval,
      kAt,
      kRest,
      kPoll,
      kPiece,
      kLock,
      option::real("weight", "0.5")
          .between(0, 1)
          .doc_text("a of w = (1 - a) w + a mean; 0: nothing is exchanged"),
      option::text("merge", "'lerp'")
          .one_of(kMerges)
          .doc_text("lerp: as above, which scales the workers' concurrent updates by 1 - a; delta: w += mean "
                    "- copy, which keeps them (weight is not used)"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "shadow_ma",
      .summary = "averages of all trainers' weights, in the background",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_NONDETERMINISTIC | TENON_CAP_HOGWILD};
  static constexpr Identity kIdentities[] = {
      {.why = "nothing of a mean that weighs nothing is merged",
       .options = "weight = 0.0",
       .other = "type = 'none'"},
      {.why = "weights that become their mean after an interval are those of local_sgd",
       .options = "mode = 'foreground'\ninterval = 8\nweight = 1.0",
       .other = "type = 'local_sgd'\ninterval = 8",
       .given = "run.steps = 8\nparallel.ranks = 2"},
      {.why = "whether a worker exchanges itself or waits for the background, the history is one",
       .options = "mode = 'stepped'\ninterval = 3",
       .other = "type = 'shadow_ma'\nmode = 'foreground'\ninterval = 3",
       .given = "parallel.workers = 1"},
  };
  explicit ShadowMa(const Options& options)
      : Averaging("shadow_ma", options, options.real("weight")), delta_(options.text("merge") == "delta") {}
  ~ShadowMa() override { stop_background(); }
  void start(Replica& replica) override;

 protected:
  std::span<const Identity> identities() const override { return kIdentities; }
  ParameterSet& evaluated() const override { return *evaluated_; }
  void merge(std::size_t index) override;
  /// Publishes the mean of the trainers' weights: no single trainer is the model.
  void publish() override;

 private:
  bool delta_;
  ParameterSet* evaluated_ = nullptr;
};

class ShadowBmuf final : public Averaging {
 public:
  static constexpr OptionSpec kOptions[] = {
      kMode,
      kInterval,
      kAt,
      kRest,
      kPoll,
      kPiece,
      kLock,
      option::real("weight", "0.5")
          .between(0, 1)
          .doc_text("a of w = (1 - a) w + a g; 0: nothing is exchanged"),
      option::real("step", "1").at_least(0).doc_text("z of d = mean - g, D = m D + z d, g += D"),
      option::real("momentum", "0").between(0, 1).doc_text("m, block momentum"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "shadow_bmuf",
      .summary = "block-wise model update filtering, in the background",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_NONDETERMINISTIC | TENON_CAP_HOGWILD};
  static constexpr Identity kIdentities[] = {
      {.why = "nothing of a model that weighs nothing is merged",
       .options = "weight = 0.0",
       .other = "type = 'none'"},
      {.why = "workers that wait and take the whole model make the round of bmuf",
       .options = "mode = 'foreground'\ninterval = 8\nweight = 1.0",
       .other = "type = 'bmuf'\ninterval = 8\nmomentum = 0.0\nnesterov = false",
       .given = "run.steps = 8\nparallel.ranks = 2"},
  };
  explicit ShadowBmuf(const Options& options)
      : Averaging("shadow_bmuf", options, options.real("weight")),
        step_(options.real("step")),
        momentum_(options.real("momentum")) {}
  ~ShadowBmuf() override { stop_background(); }
  void start(Replica& replica) override;

 protected:
  std::span<const Identity> identities() const override { return kIdentities; }
  ParameterSet& evaluated() const override { return *global_; }
  void merge(std::size_t index) override;
  void publish() override {}

 private:
  double step_, momentum_;
  ParameterSet* global_ = nullptr;
  ParameterSet* update_ = nullptr;  ///< D; null without momentum
};

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

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_shadow",
                               .version = "0.1.0",
                               .summary = "trainers that exchange weights in the background"},
             tenon::sync_shadow::ShadowEasgd, tenon::sync_shadow::ShadowMa, tenon::sync_shadow::ShadowBmuf)
