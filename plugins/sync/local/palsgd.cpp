// Draws and pulls of palsgd.hpp.
#include "palsgd.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::sync_local {

Palsgd::Palsgd(const Options& options)
    : Anchored("palsgd", options),
      p_(options.real("p")),
      eta_(options.real("eta")),
      shared_(options.text("decision_scope") == "shared"),
      consumes_data_(options.boolean("mix_consumes_data")),
      first_only_(options.boolean("mix_first_tensor_only")) {}

void Palsgd::start(Replica& replica) {
  require_contraction(p_ > 0 && eta_ > 0 ? replica.peak_rate() : 0, "at the schedule's peak");
  key_ = random_key(replica.seed(), "sync.palsgd");
  for (const ParameterInfo& info : replica.live().parameters()) {
    if (info.arena >= 0 && info.spec.role == Role::kParameter && info.spec.trainable)
      first_ = std::max(first_, info.index);  // indices follow the order in which backward finishes, so the
                                              // first tensor has the largest
  }
  Anchored::start(replica);
}

void Palsgd::require_contraction(double rate, const std::string& when) const {
  if (p_ == 0 || rate * eta_ / p_ < 2) return;
  fail_config(
      fmt::format("sync palsgd: {} a mixing slot would move the weights by rate * eta / "
                  "p = {:.6g} * {:.6g} / {:.6g} = {:.4g} times their way to the anchor, and from 2 on that "
                  "diverges; lower sync.eta or the rate, or raise sync.p",
                  when, rate, eta_, p_, rate * eta_ / p_));
}

SlotPlan Palsgd::plan(const Slot& slot) const {
  if (slot.t < warmup() || p_ == 0) return {};
  const auto who = static_cast<std::uint64_t>(shared_ ? 0 : slot.replica);
  if (random_uniform(key_, static_cast<std::uint64_t>(slot.t), who) < p_)
    return {SlotKind::kMix, 1, consumes_data_};
  return {SlotKind::kGrad, 1.0 / (1.0 - p_), true};
}

void Palsgd::between(const Slot& slot, const StepOutcome& outcome) {
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
