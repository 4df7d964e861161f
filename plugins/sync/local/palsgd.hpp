// Sync `palsgd` (arXiv 2504.18454, algorithm 1): DiLoCo in which a slot, with probability p, replaces the
// gradient by a pull of all weights towards the anchor, without data and without bytes.
#pragma once

#include "diloco.hpp"

#include <tenon/random.hpp>

namespace tenon::sync_local {

class Palsgd final : public Anchored {
 public:
  static constexpr const char* kScopes[] = {"per_worker", "shared", nullptr};
  static constexpr OptionSpec kOptions[] = {
      interval_option("100", "slots of a round"),
      option::integer("warmup", "100")
          .at_least(0)
          .in_unit("slots")
          .doc_text("distributed data parallel first: the mean gradient in every update"),
      kDrift,
      kOuterRule,
      outer_lr_option("0.7"),
      kOuterMomentum,
      kOuterBetas,
      kOuterEps,
      option::real("p", "0.1")
          .between(0, 0.999999)
          .doc_text("probability of a slot that mixes instead of training"),
      option::real("eta", "0.5")
          .at_least(0)
          .doc_text("a mixing slot moves the weights by rate * eta / p of their way to the anchor"),
      option::text("decision_scope", "\"per_worker\"")
          .one_of(kScopes)
          .doc_text(
              "who mixes: each replica draws for itself, as the paper says, or all in the same slots, as the "
              "released code does"),
      option::boolean("mix_consumes_data", "true")
          .doc_text("a mixing slot passes over its samples, as the released code does"),
      option::boolean("mix_first_tensor_only", "false")
          .doc_text("for studies: pull the model's first tensor alone, as the released code does"),
  };
  static constexpr ComponentInfo kInfo{.id = "palsgd",
                                       .summary = "DiLoCo with random slots that pull to the anchor",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Palsgd(const Options& options);

  /// Throws Error(kConfig) if a mixing slot could move weights twice the distance to the anchor, or further.
  void start(Replica& replica) override;
  SlotPlan plan(const Slot& slot) const override;

 protected:
  void between(const Slot& slot, const StepOutcome& outcome) override;

 private:
  void require_contraction(double rate, const std::string& when) const;

  double p_, eta_;
  bool shared_, consumes_data_, first_only_;
  RandomKey key_;
  int first_ = -1;  ///< parameter that `mix_first_tensor_only` pulls
};

}  // namespace tenon::sync_local
