// Sync `palsgd` (arXiv 2504.18454, algorithm 1): DiLoCo in which a slot, with probability p, replaces the
// gradient by a pull of all weights towards the anchor, without data and without bytes.
#pragma once

#include "diloco.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::sync_local {

class Palsgd final : public Anchored {
 public:
  static constexpr const char* kScopes[] = {"per_worker", "shared", nullptr};
  static constexpr OptionSpec kOptions[] = {
      interval_option("100", "slots per sync round"),
      option::integer("warmup", "100")
          .at_least(0)
          .in_unit("slots")
          .doc_text("slots of data-parallel training first, with the mean gradient in every update"),
      kDrift,
      kOuterRule,
      outer_lr_option("0.7"),
      kOuterMomentum,
      kOuterBetas,
      kOuterEps,
      option::real("p", "0.1")
          .between(0, 0.999999)
          .doc_text("probability that a slot mixes instead of training"),
      option::real("eta", "0.5")
          .at_least(0)
          .doc_text("a mixing slot moves the weights towards the anchor by rate * eta / p of the difference"),
      option::text("decision_scope", "\"per_worker\"")
          .one_of(kScopes)
          .doc_text("each replica draws its own mixing slots, as in the paper, or all mix in the same slots, "
                    "as in the released code"),
      option::boolean("mix_consumes_data", "true")
          .doc_text("a mixing slot skips its samples, as in the released code"),
      option::boolean("mix_first_tensor_only", "false")
          .doc_text("for studies: mix only the model's first tensor, as in the released code"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "palsgd",
      .summary = "DiLoCo with random slots that pull weights towards the anchor",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "without slots that mix it is DiLoCo",
       .options = "interval = 3\nwarmup = 0\np = 0.0",
       .other = "type = 'diloco'\ninterval = 3"},
      {.why = "a warm-up that does not end is data-parallel training",
       .options = "warmup = 1000000000",
       .other = "type = 'ddp'"},
  };
  explicit Palsgd(const Options& options);

  /// Throws Error(kConfig) if a mixing slot could move weights twice the distance to the anchor, or further.
  void start(Replica& replica) override;
  SlotPlan plan(const Slot& slot) const override;

 protected:
  void between(const Slot& slot, const StepOutcome& outcome) override;

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
  void require_contraction(double rate, const std::string& when) const;

  double p_, eta_;
  bool shared_, consumes_data_, first_only_;
  RandomKey key_;
  int first_ = -1;  ///< parameter that `mix_first_tensor_only` pulls
};

inline Palsgd::Palsgd(const Options& options)
    : Anchored("palsgd", options),
      p_(options.real("p")),
      eta_(options.real("eta")),
      shared_(options.text("decision_scope") == "shared"),
      consumes_data_(options.boolean("mix_consumes_data")),
      first_only_(options.boolean("mix_first_tensor_only")) {}

inline void Palsgd::start(Replica& replica) {
  require_contraction(p_ > 0 && eta_ > 0 ? replica.peak_rate() : 0, "at the schedule's peak");
  key_ = random_key(replica.seed(), "sync.palsgd");
  for (const ParameterInfo& info : replica.live().parameters()) {
    if (info.arena >= 0 && info.spec.role == Role::kParameter && info.spec.trainable)
      first_ = std::max(first_, info.index);  // indices follow the order in which backward finishes, so the
                                              // first tensor has the largest
  }
  Anchored::start(replica);
}

inline void Palsgd::require_contraction(double rate, const std::string& when) const {
  if (p_ == 0 || rate * eta_ / p_ < 2) return;
  fail_config(
      fmt::format("sync palsgd: {} a mixing slot would move the weights by rate * eta / "
                  "p = {:.6g} * {:.6g} / {:.6g} = {:.4g} times their way to the anchor, and from 2 on that "
                  "diverges; lower sync.eta or the rate, or raise sync.p",
                  when, rate, eta_, p_, rate * eta_ / p_));
}

inline SlotPlan Palsgd::plan(const Slot& slot) const {
  if (slot.t < warmup() || p_ == 0) return {};
  const auto who = static_cast<std::uint64_t>(shared_ ? 0 : slot.replica);
  if (random_uniform(key_, static_cast<std::uint64_t>(slot.t), who) < p_)
    return {SlotKind::kMix, 1, consumes_data_};
  return {SlotKind::kGrad, 1.0 / (1.0 - p_), true};
}

inline void Palsgd::between(const Slot& slot, const StepOutcome& outcome) {
  if (outcome.kind != SlotKind::kMix || eta_ == 0) return;
  // In a very long run the peak covers only the sampled slots.
  const double pull = slot.lr * eta_ / p_;
  if (!(pull < 2)) require_contraction(slot.lr, fmt::format("in slot {}", slot.t));
  ParameterSet& live = replica().live();
  if (first_only_) {
    elementwise().lerp(live.tensor(first_), center().tensor(first_), pull);
    live.touch(first_);
    return;
  }
  for (const int arena : arenas()) elementwise().lerp(live.arena(arena), center().arena(arena), pull);
  live.touch(-1);
}

}  // namespace tenon::sync_local
