#include "filler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::filler {
namespace {

Actuator::Settings actuator_settings(const Options& options) {
  Actuator::Settings settings{options.real("block_s"), options.real("ramp_seconds"),
                              static_cast<int>(options.integer("fill_threads")), 0};
  for (const std::string_view phase : options.texts("fill"))
    settings.phases |= 1u << static_cast<unsigned>(kFillable.of(phase));
  return settings;
}

}  // namespace

Filler::Filler(const Options& options)
    : s_{options.real("target"),       options.real("period_s"),    options.real("start_below"),
         options.real("stop_above"),   options.real("block"),       options.real("block_s"),
         options.real("first_blocks"), options.real("most_blocks"), options.real("gain"),
         options.real("ramp_up"),      options.real("ramp_down"),   options.integer("n_on")},
      actuator_(actuator_settings(options)) {
  if (s_.start_below > s_.stop_above)
    fail_config(
        fmt::format("'start_below' is {:g}, above stop_above of {:g}: filling would start and stop at once",
                    s_.start_below, s_.stop_above));
  if (!(s_.ramp_up > 0)) fail_config("'ramp_up' is 0, with which nothing is ever filled; expected more");
  if (!(s_.ramp_down > 0)) fail_config("'ramp_down' is 0, with which filling never ends; expected more");
}

bool Filler::neutral() const {
  return s_.most_blocks == 0;
}

void Filler::start(const PowerSetup& setup) {
  dt_ = setup.seconds_per_sample;
  rated_ = setup.rated_watts;
  block_w_ = s_.block * rated_;
  full_target_w_ = s_.target * rated_;
  rise_w_ = s_.ramp_up * rated_ * dt_;
  fall_w_ = s_.ramp_down * rated_ * dt_;
  period_ = std::max<std::int64_t>(1, std::llround(s_.period_s / dt_));
  drain_ = static_cast<std::int64_t>(std::ceil(s_.block_s / dt_ - 1e-9));
  begun_ = since_look_ = low_ = filling_ = left_ = starts_ = samples_ = filled_ = 0;
  blocks_ = draining_ = target_w_ = 0;
}

/// One period of the controller.
void Filler::look(const PowerSample& sample) {
  if (filling_ == 0) {
    low_ = sample.activity < s_.start_below ? low_ + 1 : 0;
    if (low_ < s_.n_on) return;
    filling_ = 1;
    ++starts_;
    blocks_ = std::min(s_.first_blocks, s_.most_blocks);
    left_ = 0;
    return;
  }
  if (sample.activity > s_.stop_above) {
    draining_ = blocks_;
    left_ = drain_;
    blocks_ = 0;
    filling_ = low_ = 0;
    return;
  }
  const double missing_w = target_w_ - (sample.watts + blocks_ * block_w_);
  blocks_ = std::clamp(blocks_ + s_.gain * missing_w / block_w_, 0.0, s_.most_blocks);
}

PowerOutput Filler::step(const PowerSample& sample) {
  if (begun_ == 0) {
    begun_ = 1;
    target_w_ = std::min(sample.watts, full_target_w_);
  }
  target_w_ =
      sample.ended ? std::max(0.0, target_w_ - fall_w_) : std::min(full_target_w_, target_w_ + rise_w_);
  if (since_look_ == 0) look(sample);
  since_look_ = (since_look_ + 1) % period_;
  double filler_w = blocks_ * block_w_;
  if (left_ > 0) {
    --left_;
    filler_w += draining_ * block_w_;
  }
  ++samples_;
  filled_ += filler_w > 0 ? 1 : 0;
  PowerOutput output;
  output.watts = sample.watts + filler_w;
  output.burnt = filler_w;
  return output;
}

void Filler::state(StateVisitor& visitor) {
  visitor.integer("begun", begun_);
  visitor.integer("since_look", since_look_);
  visitor.integer("low", low_);
  visitor.integer("filling", filling_);
  visitor.integer("left", left_);
  visitor.integer("starts", starts_);
  visitor.integer("samples", samples_);
  visitor.integer("filled", filled_);
  visitor.real("blocks", blocks_);
  visitor.real("draining", draining_);
  visitor.real("target", target_w_);
}

void Filler::account(const std::function<void(std::string_view, double)>& sink) const {
  sink("starts", static_cast<double>(starts_));
  sink("filled_share", samples_ > 0 ? static_cast<double>(filled_) / static_cast<double>(samples_) : 0);
}

void* Filler::query(std::string_view interface_id) {
  if (interface_id == PowerActuator::kId) return static_cast<PowerActuator*>(&actuator_);
  if (interface_id == PhaseObserver::kId) return static_cast<PhaseObserver*>(&actuator_);
  return PowerPolicyBase::query(interface_id);
}

}  // namespace tenon::filler

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.power_filler",
                               .version = "0.1.0",
                               .summary = "fills the waits of a run, and a model of such a workload"},
             tenon::filler::Filler)
