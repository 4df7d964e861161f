// Schedule `constant`: the full rate after warm-up.
#pragma once

#include "warmup.hpp"

namespace tenon::schedule {

class Constant final : public Schedule {
 public:
  static constexpr OptionSpec kOptions[] = {kWarmup};
  static constexpr ComponentInfo kInfo{.id = "constant",
                                       .summary = "constant rate after linear warm-up",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit Constant(const Options& options) : warmup_(options.integer("warmup")) {}
  double rate(const SchedulePoint& at) const override {
    return warming(at.slot, warmup_) ? warmup_rate(at.base_lr, at.slot, warmup_) : at.base_lr;
  }

 private:
  std::int64_t warmup_;
};

}  // namespace tenon::schedule
