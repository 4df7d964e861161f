// A change of phases reads the clock once, so no moment is lost between two of them.
#include "loop/time_account.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

namespace tenon::train {
namespace {

constexpr double kLongStay = 1;  // s
constexpr double kJustLeft = 5;  // s; on a busy machine the others hear of a failure so much later

}  // namespace

void TimeAccount::start() {
  running_ = true;
  phase_ = Phase::kIdle;
  seconds_.fill(0);
  long_stay_ = 0;
  since_ = began_ = clock_.now();
}

Phase TimeAccount::enter(Phase phase) {
  const double now = clock_.now();
  const double stay = now - since_;
  seconds_[static_cast<std::size_t>(phase_)] += stay;
  if (stay >= kLongStay) {
    long_phase_ = phase_;
    long_stay_ = stay;
    long_until_ = now;
  }
  since_ = now;
  if (phase != phase_) {
    for (PhaseObserver* listener : listeners_) listener->on_phase(phase, now);
  }
  return std::exchange(phase_, phase);
}

void TimeAccount::was_late(double seconds) {
  seconds_[static_cast<std::size_t>(Phase::kCommunication)] -= seconds;
  seconds_[static_cast<std::size_t>(Phase::kWait)] += seconds;
}

void TimeAccount::listen(PhaseObserver& listener) {
  const double now = clock_.now();
  listener.on_phase(Phase::kBegin, now);
  listener.on_phase(phase_, now);
  listeners_.push_back(&listener);
}

void TimeAccount::end() {
  const double now = clock_.now();
  for (PhaseObserver* listener : std::exchange(listeners_, {})) listener->on_phase(Phase::kEnd, now);
}

// An exception has left the scopes of phases by now, all at about the same time.
std::string TimeAccount::stuck_text() {
  if (!running_) return "";
  enter(phase_);
  if (long_stay_ == 0 || since_ - long_until_ >= kJustLeft) return "";
  return fmt::format(", after {:.1f} s in phase '{}'", long_stay_, phase_name(long_phase_));
}

RankTime TimeAccount::read() {
  enter(phase_);
  RankTime time;
  time.compute_s = seconds(Phase::kCompute) + seconds(Phase::kForward) + seconds(Phase::kBackward) +
                   seconds(Phase::kOptimizer);
  time.exposed_s = seconds(Phase::kCommunication);
  time.late_s = seconds(Phase::kWait);
  time.data_s = seconds(Phase::kData);
  time.evaluate_s = seconds(Phase::kEvaluate);
  time.save_s = seconds(Phase::kSave);
  time.generate_s = seconds(Phase::kGenerate);
  time.other_s = seconds(Phase::kIdle);
  time.total_s = since_ - began_;
  return time;
}

double hidden_share(const std::vector<RankTime>& ranks) {
  double exposed = 0, overlapped = 0;
  for (const RankTime& time : ranks) {
    exposed += time.exposed_s;
    overlapped += time.overlapped_s;
  }
  return exposed + overlapped > 0 ? overlapped / (exposed + overlapped)
                                  : std::numeric_limits<double>::quiet_NaN();
}

std::string slow_rank_text(const std::vector<RankTime>& ranks) {
  if (ranks.size() < 2) return "";
  const auto earlier = [](const RankTime& a, const RankTime& b) { return a.late_s < b.late_s; };
  const auto slowest = std::min_element(ranks.begin(), ranks.end(), earlier);
  std::vector<RankTime> others(ranks.begin(), slowest);
  others.insert(others.end(), std::next(slowest), ranks.end());
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end(), earlier);
  const double waited_s = middle->late_s - slowest->late_s;
  if (waited_s <= std::max(1.0, 0.1 * slowest->total_s)) return "";
  return fmt::format(
      "rank {} is slow: the others waited {:.1f} s for it, of {:.1f} s in all; it spent {:.1f} s with "
      "computing, {:.1f} s with data and {:.1f} s beside both (summary.json has all ranks)",
      slowest - ranks.begin(), waited_s, slowest->total_s, slowest->compute_s, slowest->data_s,
      slowest->other_s);
}

std::string rank_time_text(const RankTime& time) {
  std::string text =
      fmt::format("{:.17g} {:.17g} {:.17g} {:.17g} {:.17g} {:.17g} {:.17g} {:.17g} {:.17g} {:.17g}",
                  time.compute_s, time.exposed_s, time.late_s, time.data_s, time.evaluate_s, time.save_s,
                  time.generate_s, time.other_s, time.total_s, time.overlapped_s);
  for (const auto& [name, counts] : time.purposes) {
    fmt::format_to(std::back_inserter(text), " {} {} {} {} {:.17g} {:.17g} {:.17g}", name, counts.bytes_sent,
                   counts.messages_sent, counts.operations, counts.blocked_seconds, counts.late_seconds,
                   counts.transfer_seconds);
  }
  return text;
}

RankTime read_rank_time(const std::string& text) {
  std::istringstream in(text);
  RankTime time;
  in >> time.compute_s >> time.exposed_s >> time.late_s >> time.data_s >> time.evaluate_s >> time.save_s >>
      time.generate_s >> time.other_s >> time.total_s >> time.overlapped_s;
  std::string name;
  while (in >> name) {
    LinkCounts& counts = time.purposes[name];
    in >> counts.bytes_sent >> counts.messages_sent >> counts.operations >> counts.blocked_seconds >>
        counts.late_seconds >> counts.transfer_seconds;
  }
  return time;
}

}  // namespace tenon::train
