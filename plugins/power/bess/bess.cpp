#include "bess.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon::bess {
namespace {

/// `to`, but no farther from `from` than the limits; rounded so that a limit holds.
double limited(double from, double to, double rise, double fall) {
  double high = from + rise, low = from - fall;
  if (high - from > rise) high = std::nextafter(high, from);
  if (from - low > fall) low = std::nextafter(low, from);
  return std::clamp(to, low, high);
}

}  // namespace

Bess::Bess(const Options& options)
    : s_{options.real("capacity_s"),
         options.real("cutoff_hz"),
         options.real("ramp_up"),
         options.real("ramp_down"),
         options.real("charge"),
         options.real("discharge"),
         options.real("charge_efficiency"),
         options.real("discharge_efficiency"),
         options.real("soc_gain"),
         options.real("soc_target"),
         options.real("soc_start")} {
  for (const auto& [name, value] : {std::pair{"charge_efficiency", s_.charge_efficiency},
                                    std::pair{"discharge_efficiency", s_.discharge_efficiency}}) {
    if (!(value > 0)) fail_config(fmt::format("'{}' is 0; expected more than 0 and at most 1", name));
  }
  if (!(s_.ramp_up > 0))
    fail_config("'ramp_up' is 0, with which the grid's power never rises; expected more");
  if (!(s_.ramp_down > 0))
    fail_config("'ramp_down' is 0, with which the grid's power never falls; expected more");
}

bool Bess::neutral() const {
  return std::isinf(s_.cutoff_hz) && s_.soc_gain == 0 && std::isinf(s_.ramp_up) && std::isinf(s_.ramp_down);
}

void Bess::start(const PowerSetup& setup) {
  dt_ = setup.seconds_per_sample;
  full_j_ = s_.capacity_s * setup.rated_watts;
  const double swing_j = setup.rated_watts * dt_;
  if (full_j_ < swing_j)
    fail_config(
        fmt::format("'capacity_s' is {:g} s: {:.4g} J at this place, less than one sample of full swing "
                    "({:.4g} J in {:g} s); expected at least {:g}",
                    s_.capacity_s, full_j_, swing_j, dt_, dt_));
  smooth_ = std::isinf(s_.cutoff_hz) ? 1 : -std::expm1(-2 * std::numbers::pi * s_.cutoff_hz * dt_);
  rise_w_ = s_.ramp_up * setup.rated_watts * dt_;
  fall_w_ = s_.ramp_down * setup.rated_watts * dt_;
  charge_w_ = s_.charge * setup.rated_watts;
  discharge_w_ = s_.discharge * setup.rated_watts;
  energy_j_ = lowest_j_ = highest_j_ = s_.soc_start * full_j_;
  begun_ = samples_ = violations_ = 0;
  filtered_ = grid_ = 0;
}

PowerOutput Bess::step(const PowerSample& sample) {
  const double load = sample.watts;
  if (begun_ == 0) {
    begun_ = 1;
    filtered_ = grid_ = load;
  }
  filtered_ = smooth_ == 1 ? load : filtered_ + smooth_ * (load - filtered_);
  const double wish = filtered_ + s_.soc_gain * (s_.soc_target * full_j_ - energy_j_);
  const double reference = limited(grid_, wish, rise_w_, fall_w_);
  const double wanted = load - reference;
  const double most = std::min(discharge_w_, energy_j_ * s_.discharge_efficiency / dt_);
  const double least = -std::min(charge_w_, (full_j_ - energy_j_) / (s_.charge_efficiency * dt_));
  const double battery = std::clamp(wanted, least, most);
  PowerOutput output;
  output.violation = battery != wanted;
  // The reference itself where the battery reaches it: load - (load - reference) rounds twice.
  grid_ = output.violation ? load - battery : reference;
  const double efficiency = battery < 0 ? s_.charge_efficiency : 1 / s_.discharge_efficiency;
  energy_j_ = std::clamp(energy_j_ - battery * efficiency * dt_, 0.0, full_j_);
  lowest_j_ = std::min(lowest_j_, energy_j_);
  highest_j_ = std::max(highest_j_, energy_j_);
  ++samples_;
  violations_ += output.violation ? 1 : 0;
  output.watts = grid_;
  output.stored = -battery;
  output.charge_j = energy_j_;
  return output;
}

void Bess::state(StateVisitor& visitor) {
  visitor.integer("begun", begun_);
  visitor.integer("samples", samples_);
  visitor.integer("violations", violations_);
  visitor.real("filtered", filtered_);
  visitor.real("grid", grid_);
  visitor.real("energy_j", energy_j_);
  visitor.real("lowest_j", lowest_j_);
  visitor.real("highest_j", highest_j_);
}

void Bess::account(const std::function<void(std::string_view, double)>& sink) const {
  sink("capacity_j", full_j_);
  sink("lowest_charge", full_j_ > 0 ? lowest_j_ / full_j_ : 0);
  sink("highest_charge", full_j_ > 0 ? highest_j_ / full_j_ : 0);
  sink("violation_share",
       samples_ > 0 ? static_cast<double>(violations_) / static_cast<double>(samples_) : 0);
}

}  // namespace tenon::bess

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.power_bess",
                               .version = "0.1.0",
                               .summary = "battery storage at a rack or a site (simulated)"},
             tenon::bess::Bess)
