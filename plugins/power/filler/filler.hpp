// Component `filler` (contract power/1) with two roles: as PowerActuator it fills the waits of a real run
// (actuator.hpp); as PowerPolicy, in this file, it is the model of a second workload on the same worker that
// starts when the first one's activity falls and backs off when it returns (Firefly, arXiv 2508.14318). The
// published idea is the structure; constants and the proportional loop are ours. Every `period_s`:
//   IDLE: activity < start_below in n_on successive periods -> FILL, q = first_blocks
//   FILL: q = clamp(q + gain (P_target - P) / block, 0, most_blocks);   activity > stop_above -> q = 0, IDLE
// q = blocks in flight, each of block x rated power. Blocks that were in flight at the back-off run to their
// end, at most block_s. P_target rises from the first load by at most ramp_up, and falls after the job by
// ramp_down.
#pragma once

#include "actuator.hpp"

#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

namespace tenon::filler {

class Filler final : public PowerPolicyBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("target", "0.9").between(0, 1).doc_text("model: power to fill up to, of the rated power"),
      option::real("period_s", "0.001")
          .at_least(1e-6)
          .in_unit("s")
          .doc_text("model: between two looks at the activity"),
      option::real("start_below", "0.2").between(0, 1).doc_text("model: activity below which filling starts"),
      option::real("stop_above", "0.5").between(0, 1).doc_text("model: activity above which it backs off"),
      option::integer("n_on", "5")
          .between(1, 1000000)
          .doc_text("model: successive periods below start_below before filling starts"),
      option::real("block", "0.05")
          .between(1e-6, 1)
          .doc_text("model: power of one block in flight, of the rated power"),
      option::real("block_s", "0.0002")
          .between(0, 10)
          .in_unit("s")
          .doc_text("both: length of a block, and so the longest drain; a run needs from 1e-5 to 0.01"),
      option::real("first_blocks", "1").at_least(0).doc_text("model: in flight when filling starts"),
      option::real("most_blocks", "20").at_least(0).doc_text("model: in flight at most; 0: never fills"),
      option::real("gain", "0.5")
          .between(0, 2)
          .doc_text("model: share of the missing power that one period adds"),
      option::real("ramp_up", "inf")
          .at_least(0)
          .in_unit("1/s")
          .doc_text("model: largest rise of the target at the start of the job, in rated powers a second"),
      option::real("ramp_down", "inf")
          .at_least(0)
          .in_unit("1/s")
          .doc_text("model: largest fall of the target after the job"),
      option::texts("fill", "[\"communication\", \"wait\"]")
          .one_of(kFillable)
          .doc_text("run: phases that are filled"),
      option::integer("fill_threads", "0")
          .between(0, 1024)
          .doc_text("run: threads that fill; 0 = as many as the rank has"),
      option::real("ramp_seconds", "0")
          .between(0, 600)
          .in_unit("s")
          .doc_text("run: time in which the load rises before the first slot, and falls after the last"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "filler",
      .summary = "fills the waits of a run with work that yields to it; and a model of that",
      .options = kOptions};

  /// Throws Error(kConfig) for start_below above stop_above and for a ramp of 0.
  explicit Filler(const Options& options);

  bool neutral() const override;
  void start(const PowerSetup& setup) override;
  PowerOutput step(const PowerSample& sample) override;
  void state(StateVisitor& visitor) override;
  void account(const std::function<void(std::string_view, double)>& sink) const override;
  void* query(std::string_view interface_id) override;

 private:
  void look(const PowerSample& sample);

  struct Settings {
    double target, period_s, start_below, stop_above, block, block_s, first_blocks, most_blocks, gain,
        ramp_up, ramp_down;
    std::int64_t n_on;
  };
  Settings s_;
  double dt_ = 0, rated_ = 0, block_w_ = 0, full_target_w_ = 0, rise_w_ = 0, fall_w_ = 0;
  std::int64_t period_ = 1, drain_ = 0;  ///< samples
  std::int64_t begun_ = 0, since_look_ = 0, low_ = 0, filling_ = 0, left_ = 0, starts_ = 0, samples_ = 0,
               filled_ = 0;
  double blocks_ = 0, draining_ = 0, target_w_ = 0;
  Actuator actuator_;
};

}  // namespace tenon::filler
