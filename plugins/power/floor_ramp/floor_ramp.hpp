// Policy `floor_ramp` (contract power/1): a power floor, limits of change, hysteresis before a ramp down, and
// a ceiling, after the power smoothing of GB200 (arXiv 2508.14318). Simulated: no setting of hardware
// changes.
//   target = max(load, floor)                                      burn where the load is below
//   target >= out: out = min(target, out + ramp_up dt)              the worker is throttled to out
//   else, hysteresis after the last such sample: out = max(target, out - ramp_down dt)
//   out = min(out, ceiling)
// Once the job has ended the floor comes down by at most ramp_down.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

namespace tenon::floor_ramp {

class FloorRamp final : public PowerPolicyBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("floor", "0")
          .between(0, 1)
          .doc_text("lowest power while the job runs, of the rated power"),
      option::real("ceiling", "inf").at_least(0).doc_text("highest power, of the rated power"),
      option::real("ramp_up", "inf")
          .at_least(0)
          .in_unit("1/s")
          .doc_text("largest rise, in rated powers a second"),
      option::real("ramp_down", "inf")
          .at_least(0)
          .in_unit("1/s")
          .doc_text("largest fall, in rated powers a second"),
      option::real("hysteresis_s", "0")
          .between(0, 1e6)
          .in_unit("s")
          .doc_text("how long power stays up before it falls"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "floor_ramp", .summary = "power floor, ramp limits, hysteresis and ceiling", .options = kOptions};

  /// Throws Error(kConfig) for a ramp of 0 and for a floor above the ceiling.
  explicit FloorRamp(const Options& options);

  bool neutral() const override;
  void start(const PowerSetup& setup) override;
  PowerOutput step(const PowerSample& sample) override;
  void state(StateVisitor& visitor) override;
  void account(const std::function<void(std::string_view, double)>& sink) const override;

 private:
  double floor_, ceiling_, ramp_up_, ramp_down_, hysteresis_s_;
  double floor_w_ = 0, ceiling_w_ = 0, rise_w_ = 0, fall_w_ = 0;  ///< of the place; per sample
  std::int64_t hold_ = 0;                                         ///< samples
  std::int64_t below_ = 0;       ///< samples since the last with target >= out
  std::int64_t begun_ = 0;       ///< 0 before the first sample
  std::int64_t ramps_down_ = 0;  ///< how often a fall began
  std::int64_t falling_ = 0;
  double out_ = 0, held_floor_ = 0;
};

}  // namespace tenon::floor_ramp
