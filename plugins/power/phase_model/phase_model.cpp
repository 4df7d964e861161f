#include "phase_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace tenon::phase_model {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr int kPhaseBits = 8;

}  // namespace

void PhaseTrack::put(Phase phase, double at_s) {
  const auto nanoseconds = static_cast<std::uint64_t>(std::max(0.0, at_s) / kNanosecond);
  const std::uint64_t next = written_.load(std::memory_order_relaxed);
  // Release: a reader that sees this word sees that the words before it were written.
  words_[next % kRoom].store(nanoseconds << kPhaseBits | static_cast<std::uint64_t>(phase),
                             std::memory_order_release);
  written_.store(next + 1, std::memory_order_release);
}

bool PhaseTrack::take(double until_s, Event& event) {
  while (true) {
    const std::uint64_t written = written_.load(std::memory_order_acquire);
    if (read_ == written) return false;
    // One less than the room: the writer may be writing over the oldest word.
    const std::uint64_t oldest = written < kRoom ? 0 : written - kRoom + 1;
    if (read_ < oldest) {
      lost_ += oldest - read_;
      read_ = oldest;
    }
    const std::uint64_t word = words_[read_ % kRoom].load(std::memory_order_acquire);
    // Written over in between: the word belongs to a later event.
    if (written_.load(std::memory_order_acquire) >= read_ + kRoom) continue;
    event.phase = static_cast<Phase>(word & 0xff);
    event.at_s = static_cast<double>(word >> kPhaseBits) * kNanosecond;
    if (event.at_s > until_s) return false;
    ++read_;
    return true;
  }
}

PhaseModel::PhaseModel(const Options& options)
    : rated_w_(options.real("rated_watts")),
      rise_s_(options.real("rise_s")),
      fall_s_(options.real("fall_s")) {
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const auto named = static_cast<Phase>(phase);
    // Before the first slot and after the last one a rank is idle.
    const bool outside = named == Phase::kBegin || named == Phase::kEnd;
    levels_w_[phase] = rated_w_ * options.real(phase_name(outside ? Phase::kIdle : named));
  }
}

PowerSourceInfo PhaseModel::open(int) {
  PowerSourceInfo info;
  info.sensor = fmt::format("levels of phases for {:g} W, which are assumptions", rated_w_);
  info.origin = PowerOrigin::kModelled;
  info.unit = PowerUnit::kWatts;
  info.rated = rated_w_;
  return info;
}

void* PhaseModel::query(std::string_view interface_id) {
  if (interface_id == PhaseObserver::kId) return static_cast<PhaseObserver*>(this);
  return PowerSourceBase::query(interface_id);
}

void PhaseModel::advance(double to_s) {
  const double elapsed_s = to_s - at_s_;
  if (!(elapsed_s > 0)) return;
  at_s_ = to_s;
  const double above_w = watts_ - level_w_, tau_s = above_w < 0 ? rise_s_ : fall_s_;
  energy_j_ += level_w_ * elapsed_s;
  if (tau_s > 0) {
    // 1 - exp(-t / tau), which for short times is no difference of equal numbers.
    const double gone = -std::expm1(-elapsed_s / tau_s);
    energy_j_ += above_w * tau_s * gone;
    watts_ = level_w_ + above_w * (1 - gone);
  } else {
    watts_ = level_w_;
  }
}

double PhaseModel::read(double now_s) {
  const auto begin = [&](double at_s) {
    begun_ = true;
    at_s_ = value_s_ = at_s;
    watts_ = level_w_ = levels_w_[static_cast<std::size_t>(Phase::kIdle)];
  };
  PhaseTrack::Event event;
  while (track_.take(now_s, event)) {
    if (!begun_) begin(event.at_s);
    advance(event.at_s);
    const auto phase = static_cast<std::size_t>(event.phase);
    level_w_ = levels_w_[phase < kPhases ? phase : static_cast<std::size_t>(Phase::kIdle)];
  }
  if (!begun_) begin(now_s);
  advance(now_s);
  const double since_s = at_s_ - value_s_;
  if (!(since_s > 0)) return std::numeric_limits<double>::quiet_NaN();
  // Not below 0 by rounding, where a rise from 0 is much slower than the time between values.
  const double mean_w = std::max(0.0, energy_j_ / since_s);
  energy_j_ = 0;
  value_s_ = at_s_;
  return mean_w;
}

}  // namespace tenon::phase_model

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.power_phase_model",
                               .version = "0.1.0",
                               .summary = "modelled watts of ranks, by their phases"},
             tenon::phase_model::PhaseModel)
