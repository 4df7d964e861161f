// Policy `bess` (contract power/1): a battery that holds the grid's power at a low-pass of the load, within
// limits of change, of its own power and of its charge E (arXiv 2508.14318, storage at the rack). Simulated.
//   P_ref  = limited(lowpass(load, cutoff) + soc_gain (E_ref - E))            from the last grid power
//   P_b    = clamp(load - P_ref, -min(charge, (E_max - E) / (eta_c dt)), min(discharge, E eta_d / dt))
//   P_grid = load - P_b;        a violation where P_b was clamped
//   E     += -P_b (eta_c if P_b < 0 else 1 / eta_d) dt
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

namespace tenon::bess {

class Bess final : public PowerPolicyBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("capacity_s", nullptr)
          .mandatory()
          .at_least(0)
          .in_unit("s")
          .doc_text("usable energy, in seconds of the rated power"),
      option::real("cutoff_hz", "0.05")
          .at_least(1e-6)
          .in_unit("Hz")
          .doc_text("of the first-order low-pass of the load; inf: the load itself"),
      option::real("ramp_up", "inf")
          .at_least(0)
          .in_unit("1/s")
          .doc_text("largest rise of the grid's power, in rated powers a second"),
      option::real("ramp_down", "inf")
          .at_least(0)
          .in_unit("1/s")
          .doc_text("largest fall, in rated powers a second"),
      option::real("charge", "1").at_least(0).doc_text("highest charging power, of the rated power"),
      option::real("discharge", "1").at_least(0).doc_text("highest discharging power, of the rated power"),
      option::real("charge_efficiency", "0.95")
          .between(0, 1)
          .doc_text("energy stored per energy taken from the grid"),
      option::real("discharge_efficiency", "0.95")
          .between(0, 1)
          .doc_text("energy given per energy taken from the storage"),
      option::real("soc_gain", "0.05")
          .at_least(0)
          .in_unit("1/s")
          .doc_text("power asked per joule below soc_target; well below the band that the grid forbids"),
      option::real("soc_target", "0.5").between(0, 1).doc_text("charge to return to, of the capacity"),
      option::real("soc_start", "0.5").between(0, 1).doc_text("charge at the first sample, of the capacity"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "bess", .summary = "battery that holds the grid at a low-pass of the load", .options = kOptions};

  /// Throws Error(kConfig) for an efficiency of 0 and for a ramp of 0.
  explicit Bess(const Options& options);

  bool neutral() const override;
  /// Throws Error(kConfig) for a capacity that a single sample of full swing exhausts.
  void start(const PowerSetup& setup) override;
  PowerOutput step(const PowerSample& sample) override;
  void state(StateVisitor& visitor) override;
  void account(const std::function<void(std::string_view, double)>& sink) const override;

 private:
  struct Settings {
    double capacity_s, cutoff_hz, ramp_up, ramp_down, charge, discharge, charge_efficiency,
        discharge_efficiency, soc_gain, soc_target, soc_start;
  };
  Settings s_;
  double dt_ = 0, smooth_ = 1, rise_w_ = 0, fall_w_ = 0, charge_w_ = 0, discharge_w_ = 0, full_j_ = 0;
  std::int64_t begun_ = 0, samples_ = 0, violations_ = 0;
  double filtered_ = 0, grid_ = 0, energy_j_ = 0, lowest_j_ = 0, highest_j_ = 0;
};

}  // namespace tenon::bess
