// Schedule `cosine` (Loshchilov and Hutter, ICLR 2017, one cycle): after warm-up
//   min_lr + (lr - min_lr) (1 + cos(pi (t - warmup) / (steps - warmup))) / 2
#pragma once

#include "warmup.hpp"

#include <cmath>
#include <numbers>

namespace tenon::schedule {

class Cosine final : public Schedule {
 public:
  static constexpr OptionSpec kOptions[] = {
      kWarmup, kMinLr,
      option::integer("steps", nullptr)
          .at_least(1)
          .in_unit("slots")
          .doc_text("slot at which min_lr is reached and kept; absent: the planned end of the run")};
  static constexpr ComponentInfo kInfo{.id = "cosine",
                                       .summary = "half a cosine down to min_lr after linear warm-up",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Cosine(const Options& options)
      : warmup_(options.integer("warmup")),
        min_lr_(options.real("min_lr")),
        steps_(options.has("steps") ? options.integer("steps") : 0) {}
  double rate(const SchedulePoint& at) const override {
    if (warming(at.slot, warmup_)) return warmup_rate(at.base_lr, at.slot, warmup_);
    const double u = progress(at.slot, warmup_, steps_ > 0 ? steps_ : at.steps);
    return min_lr_ + 0.5 * (at.base_lr - min_lr_) * (1.0 + std::cos(std::numbers::pi * u));
  }

 private:
  std::int64_t warmup_;
  double min_lr_;
  std::int64_t steps_;  // 0: the run's
};

}  // namespace tenon::schedule
