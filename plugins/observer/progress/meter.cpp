// Exponential means of rates; old samples decay with a time constant of five seconds.
#include "meter.hpp"

#include <cmath>

namespace tenon::progress {
namespace {

constexpr double kFade_s = 5.0;
constexpr double kShortest_s = 0.05;

void blend(double& rate, double latest, double share) {
  rate = std::isnan(rate) ? latest : rate + share * (latest - rate);
}

}  // namespace

void Meter::start(double now, std::int64_t slots, std::int64_t units) {
  started_ = true;
  at_ = now;
  slots_ = slots;
  units_ = units;
}

void Meter::look(double now, std::int64_t slots, std::int64_t units) {
  const double passed = now - at_;
  if (passed < kShortest_s) return;
  const double share = 1 - std::exp(-passed / kFade_s);
  blend(slots_rate_, static_cast<double>(slots - slots_) / passed, share);
  blend(units_rate_, static_cast<double>(units - units_) / passed, share);
  start(now, slots, units);
}

}  // namespace tenon::progress
