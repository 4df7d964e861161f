// Costs and delays of compute_cost.hpp. What is measured is the thread's processor time: other ranks run on
// the same cores meanwhile, and their time is not this rank's.
#include "loop/compute_cost.hpp"

#include <tenon/random.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <sstream>
#include <thread>

namespace tenon::train {
namespace {

constexpr int kCalibrationSlots = 5;
constexpr double kNapSeconds = 0.02;  ///< how soon a delay notices that the run has failed

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool hits(const config::StragglerSettings& straggler, int rank) {
  return std::find(straggler.ranks.begin(), straggler.ranks.end(), rank) != straggler.ranks.end();
}

}  // namespace

void spend(double seconds, Clock& clock, const ControlPlane& control) {
  if (!(seconds > 0)) return;
  if (clock.simulated()) return clock.advance(seconds);
  const double end = clock.now() + seconds;
  while (!control.failed() && clock.now() < end)
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(kNapSeconds, end - clock.now())));
}

ComputeCost::ComputeCost(const ComputeCostSpec& spec)
    : spec_(spec),
      simulated_(spec.clock->simulated()),
      measures_(simulated_ && spec.settings->transport.costs.calibrate) {
  const config::CostSettings& costs = spec.settings->transport.costs;
  const std::size_t rank = spec.rank;
  if (rank < costs.speed.size()) speed_ = costs.speed[rank];
  for (const config::StragglerSettings& straggler : spec.settings->transport.stragglers) {
    if (straggler.kind == config::StragglerSettings::Kind::kFactor && hits(straggler, spec.rank))
      slowness_ *= straggler.factor;
  }
  if (!costs.compute_seconds) return;
  const double backward = *costs.compute_seconds * costs.backward_share;
  set_costs({*costs.compute_seconds - backward, backward, costs.optimizer_seconds, costs.mix_seconds});
}

void ComputeCost::set_costs(const PieceSeconds& costs) {
  costs_ = costs;
  known_ = true;
}

double ComputeCost::random_delay(std::int64_t t) const {
  double delay = 0;
  const std::vector<config::StragglerSettings>& stragglers = spec_.settings->transport.stragglers;
  for (std::size_t i = 0; i < stragglers.size(); ++i) {
    const config::StragglerSettings& straggler = stragglers[i];
    if (!hits(straggler, spec_.rank)) continue;
    if (straggler.kind == config::StragglerSettings::Kind::kPause && straggler.step == t)
      delay += straggler.seconds;
    if (straggler.kind != config::StragglerSettings::Kind::kExponential) continue;
    const RandomKey key = random_key(spec_.settings->run.seed, fmt::format("straggler.{}", i));
    const double uniform =
        random_uniform(key, static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(spec_.rank));
    const auto micros = static_cast<double>(spec_.settings->run.accumulate);
    const double step = simulated_ ? micros * (costs_.forward + costs_.backward) : last_work_s_;
    delay += -std::log1p(-uniform) * straggler.mean * step;
  }
  return delay;
}

void ComputeCost::begin_slot(std::int64_t t) {
  slot_work_s_ = 0;
  const double delay = random_delay(t);
  if (delay > 0) {
    const SpanScope span(spec_.spans, "declared", "straggler");
    spend(delay, *spec_.clock, *spec_.control);
  }
}

void ComputeCost::begin_piece() {
  lap_began_s_ = thread_seconds();
}

double ComputeCost::declared(Piece piece) const {
  const double cost = piece == kForward    ? costs_.forward
                      : piece == kBackward ? costs_.backward
                      : piece == kUpdate   ? costs_.update
                                           : costs_.mix;
  return cost / speed_ * slowness_;
}

void ComputeCost::take(double seconds) {
  if (!simulated_ || !(seconds > 0)) return;
  const SpanScope span(spec_.spans, "declared", "declared");
  spec_.clock->advance(seconds);
}

/// The piece that ends now: what it took in real time, and under the wall clock what a straggler adds to it.
void ComputeCost::lap(Piece piece) {
  const double took = thread_seconds() - lap_began_s_;
  if (measures_ && !known_) {
    laps_[piece].push_back(took);
    take(took / speed_ * slowness_);
  }
  slot_work_s_ += took;
  if (!simulated_ && slowness_ > 1) spend((slowness_ - 1) * took, *spec_.clock, *spec_.control);
  if (piece == kBackward) last_work_s_ = slot_work_s_;
}

void ComputeCost::forward() {
  if (known_) take(declared(kForward));
  lap(kForward);
  done_share_ = 0;
}

void ComputeCost::backward_until(double share) {
  if (known_ && share > done_share_) take(declared(kBackward) * (share - done_share_));
  done_share_ = std::max(done_share_, share);
}

void ComputeCost::backward_done() {
  backward_until(1);
  lap(kBackward);
}

void ComputeCost::update() {
  if (known_) take(declared(kUpdate));
  lap(kUpdate);
}

// The pull comes before a synchronisation round that the same slot may hold.
void ComputeCost::mix_begins() {
  if (known_) take(declared(kMix));
  begin_piece();
}

void ComputeCost::mix_ends() {
  lap(kMix);
}

int ComputeCost::calibration_slots() const {
  return measures_ && !known_ ? kCalibrationSlots : 0;
}

std::string ComputeCost::measured() const {
  return fmt::format("{:.17g} {:.17g} {:.17g} {:.17g}", median(laps_[kForward]), median(laps_[kBackward]),
                     median(laps_[kUpdate]), median(laps_[kMix]));
}

void ComputeCost::calibrate(const std::vector<std::string>& ranks) {
  std::vector<double> pieces[4];
  for (const std::string& text : ranks) {
    std::istringstream in(text);
    for (auto& piece : pieces) {
      double seconds = 0;
      in >> seconds;
      if (seconds > 0) piece.push_back(seconds);
    }
  }
  set_costs(
      {median(pieces[kForward]), median(pieces[kBackward]), median(pieces[kUpdate]), median(pieces[kMix])});
}

}  // namespace tenon::train
