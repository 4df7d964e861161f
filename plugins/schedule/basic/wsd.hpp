// Schedule `wsd` (warm-up, stable, decay; Hu et al. 2024, Hägele et al. 2024): the full rate until the last
// share of the run, then down to min_lr by u (linear) or sqrt(u), where u is the progress of the decay.
#pragma once

#include "warmup.hpp"

#include <cmath>

namespace tenon::schedule {

class Wsd final : public Schedule {
 public:
  static constexpr const char* kShapes[] = {"linear", "sqrt", nullptr};
  static constexpr OptionSpec kOptions[] = {
      kWarmup, kMinLr,
      option::real("decay", "0.2")
          .between(0, 1)
          .doc_text("share of the run, at its end, that decays")
          .in_unit("of steps"),
      option::text("shape", "\"linear\"").one_of(kShapes).doc_text("linear: 1 - u; sqrt: 1 - sqrt(u)")};
  static constexpr ComponentInfo kInfo{.id = "wsd",
                                       .summary = "warm-up, stable, decay",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Wsd(const Options& options)
      : warmup_(options.integer("warmup")),
        min_lr_(options.real("min_lr")),
        decay_(options.real("decay")),
        linear_(options.text("shape") == "linear") {}
  double rate(const SchedulePoint& at) const override {
    if (warming(at.slot, warmup_)) return warmup_rate(at.base_lr, at.slot, warmup_);
    // Near 2^63 slots rounding may raise the product above the number of slots.
    const double share = decay_ * static_cast<double>(at.steps);
    const std::int64_t begin = share < static_cast<double>(at.steps) ? at.steps - std::llround(share) : 0;
    if (at.slot < begin) return at.base_lr;
    const double u = progress(at.slot, begin, at.steps);
    return min_lr_ + (at.base_lr - min_lr_) * (1.0 - (linear_ ? u : std::sqrt(u)));
  }

 private:
  std::int64_t warmup_;
  double min_lr_, decay_;
  bool linear_;
};

}  // namespace tenon::schedule
