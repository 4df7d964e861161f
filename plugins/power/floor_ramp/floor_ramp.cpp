#include "floor_ramp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::floor_ramp {
namespace {

/// `from` + `step`, rounded so that the difference does not exceed the step.
double raised(double from, double step) {
  const double to = from + step;
  return to - from > step ? std::nextafter(to, from) : to;
}

double lowered(double from, double step) {
  const double to = from - step;
  return from - to > step ? std::nextafter(to, from) : to;
}

}  // namespace

FloorRamp::FloorRamp(const Options& options)
    : floor_(options.real("floor")),
      ceiling_(options.real("ceiling")),
      ramp_up_(options.real("ramp_up")),
      ramp_down_(options.real("ramp_down")),
      hysteresis_s_(options.real("hysteresis_s")) {
  if (floor_ > ceiling_)
    fail_config(
        fmt::format("'floor' is {:g}, above the ceiling of {:g}; lower the floor or raise the ceiling",
                    floor_, ceiling_));
  if (!(ramp_up_ > 0)) fail_config("'ramp_up' is 0, with which power never rises; expected more");
  if (!(ramp_down_ > 0)) fail_config("'ramp_down' is 0, with which power never falls; expected more");
}

bool FloorRamp::neutral() const {
  return floor_ == 0 && std::isinf(ceiling_) && std::isinf(ramp_up_) && std::isinf(ramp_down_) &&
         hysteresis_s_ == 0;
}

void FloorRamp::start(const PowerSetup& setup) {
  floor_w_ = floor_ * setup.rated_watts;
  ceiling_w_ = ceiling_ * setup.rated_watts;
  rise_w_ = ramp_up_ * setup.rated_watts * setup.seconds_per_sample;
  fall_w_ = ramp_down_ * setup.rated_watts * setup.seconds_per_sample;
  // Whole samples: summed seconds would drift by their rounding.
  hold_ = static_cast<std::int64_t>(std::ceil(hysteresis_s_ / setup.seconds_per_sample - 1e-9));
  below_ = begun_ = ramps_down_ = falling_ = 0;
  out_ = held_floor_ = 0;
}

PowerOutput FloorRamp::step(const PowerSample& sample) {
  const double load = sample.watts;
  if (begun_ == 0) {
    begun_ = 1;
    out_ = load;
    held_floor_ = floor_w_;
  }
  held_floor_ = sample.ended ? std::max(0.0, lowered(held_floor_, fall_w_)) : floor_w_;
  const double target = std::max(load, held_floor_);
  if (target >= out_) {
    out_ = std::min(target, raised(out_, rise_w_));
    below_ = falling_ = 0;
  } else if (++below_ >= hold_) {
    out_ = std::max(target, lowered(out_, fall_w_));
    ramps_down_ += falling_ == 0 ? 1 : 0;
    falling_ = 1;
  }
  out_ = std::min(out_, ceiling_w_);
  PowerOutput output;
  output.watts = out_;
  output.burnt = std::max(0.0, out_ - load);
  output.withheld = std::max(0.0, load - out_);
  output.work = load > out_ ? out_ / load : 1;
  return output;
}

void FloorRamp::state(StateVisitor& visitor) {
  visitor.integer("begun", begun_);
  visitor.integer("below", below_);
  visitor.integer("falling", falling_);
  visitor.integer("ramps_down", ramps_down_);
  visitor.real("out", out_);
  visitor.real("floor", held_floor_);
}

void FloorRamp::account(const std::function<void(std::string_view, double)>& sink) const {
  sink("ramps_down", static_cast<double>(ramps_down_));
}

}  // namespace tenon::floor_ramp

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.power_floor_ramp",
                               .version = "0.1.0",
                               .summary = "power floor, ramp limits, hysteresis and ceiling (simulated)"},
             tenon::floor_ramp::FloorRamp)
