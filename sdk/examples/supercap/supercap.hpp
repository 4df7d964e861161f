// Power policy `supercap` (contract power/1): capacitors in a worker's power supply, without losses and
// without a controller beyond a time constant. The supply draws P = P + (load + (E_full / 2 - E) / seconds -
// P) dt / seconds, as far as the charge E between 0 and E_full lets it. About 65 J a GPU are built into
// present supplies. Pure in options, place and samples.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

#include <algorithm>

namespace supercap {

class Supercap final : public tenon::PowerPolicyBase {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::real("joules", "65")
          .between(1e-3, 1e9)
          .in_unit("J")
          .doc_text("usable energy of one worker's capacitors"),
      tenon::option::real("seconds", "0")
          .between(0, 1e6)
          .in_unit("s")
          .doc_text("time constant of the supply's draw; 0: none"),
  };
  static constexpr tenon::ComponentInfo kInfo{
      .id = "supercap", .summary = "capacitors in a power supply", .options = kOptions};

  explicit Supercap(const tenon::Options& options)
      : joules_(options.real("joules")), seconds_(options.real("seconds")) {}

  bool neutral() const override { return seconds_ == 0; }

  void start(const tenon::PowerSetup& setup) override {
    dt_ = setup.seconds_per_sample;
    full_j_ = joules_ * setup.workers;
    charge_j_ = full_j_ / 2;
    begun_ = 0;
    drawn_ = 0;
  }

  tenon::PowerOutput step(const tenon::PowerSample& sample) override {
    tenon::PowerOutput output;
    output.watts = sample.watts;
    output.charge_j = charge_j_;
    if (neutral()) return output;
    if (begun_ == 0) drawn_ = sample.watts;
    begun_ = 1;
    const double wish = sample.watts + (full_j_ / 2 - charge_j_) / seconds_;
    const double aim = std::max(0.0, drawn_ + (wish - drawn_) * std::min(1.0, dt_ / seconds_));
    output.stored = std::clamp(aim - sample.watts, -charge_j_ / dt_, (full_j_ - charge_j_) / dt_);
    output.violation = output.stored != aim - sample.watts;
    output.watts = drawn_ = sample.watts + output.stored;
    charge_j_ = std::clamp(charge_j_ + output.stored * dt_, 0.0, full_j_);
    output.charge_j = charge_j_;
    return output;
  }

  void state(tenon::StateVisitor& visitor) override {
    visitor.integer("begun", begun_);
    visitor.real("drawn", drawn_);
    visitor.real("charge_j", charge_j_);
  }

 private:
  double joules_, seconds_;
  double dt_ = 0, full_j_ = 0, drawn_ = 0, charge_j_ = 0;
  std::int64_t begun_ = 0;
};

}  // namespace supercap
