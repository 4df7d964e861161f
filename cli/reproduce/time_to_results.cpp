// Re-timed trajectories and the numbers derived from them; see time_to_results.hpp.
#include "reproduce/time_to_results.hpp"

#include "ab/study.hpp"
#include "reproduce/results.hpp"
#include "reproduce/time_to_plan.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;
using Curves = std::vector<std::vector<std::optional<Curve>>>;  // by arm and seed

/// Purposes whose bytes are the strategy's own; a timing run must send the same.
constexpr const char* kMessages[] = {"gradient", "parameter"};

std::string other_messages(const ab::RunRecord& run, const ab::RunRecord& timing) {
  for (const char* purpose : kMessages) {
    const double sent = ab::bytes_of(run.bytes_by_purpose, purpose);
    const double timed = ab::bytes_of(timing.bytes_by_purpose, purpose);
    if (sent == timed) continue;
    return fmt::format("its timing run sent {:.0f} bytes of purpose {}, the run itself {:.0f}", timed,
                       purpose, sent);
  }
  return "";
}

class Reader {
 public:
  Reader(StudyResult& study, std::string folder)
      : r_(study), t_(*study.study.time_to), folder_(std::move(folder)) {}

  TimeToResult read() {
    for (const TimeToLink& link : t_.links) out_.links.push_back(link.name);
    if (t_.links.empty()) out_.links.push_back("as run");
    const auto& simulated = r_.provenance.simulated;
    out_.simulated = !t_.links.empty() || !simulated.empty();
    out_.arms.resize(r_.arms.size());
    for (TimeToArm& arm : out_.arms) arm.links.resize(out_.links.size());
    find_baselines();
    for (std::size_t l = 0; l < out_.links.size(); ++l) read_link(l);
    return std::move(out_);
  }

 private:
  std::size_t seeds() const { return r_.size.seeds.size(); }
  const std::string& name(std::size_t arm) const { return r_.study.arms[arm].arm.name; }

  void find_baselines() {
    for (std::size_t a = 0; a < r_.arms.size(); ++a) {
      const auto& arms = r_.study.arms;
      const auto found = std::find_if(arms.begin(), arms.end(), [&](const StudyArm& other) {
        return other.arm.name == arms[a].baseline;
      });
      baseline_.push_back(static_cast<std::size_t>(found - arms.begin()));
      for (std::size_t s = 0; s < seeds(); ++s)
        out_.arms[a].thresholds.push_back(threshold(r_.arms[baseline_[a]].runs[s]));
    }
  }

  /// The value of a baseline's run at the end of its budget; empty if the run has no value.
  std::optional<double> threshold(const RunResult& run) const {
    if (!run.value || t_.budget == 1) return run.value;
    Curve curve;
    for (const ab::MetricPoint& p : run.record->series.at(r_.study.metric))
      curve.push_back({.step = static_cast<double>(p.step), .value = p.value});
    return value_at(curve, &CurvePoint::step, t_.budget * run.record->steps);
  }

  void missing(std::string why) {
    r_.warnings.push_back(std::move(why));
    r_.complete = false;
  }

  /// The run that times `arm` and `seed` under `link`; null with a warning if there is none.
  const ab::RunRecord* timing(std::size_t link, std::size_t arm, std::int64_t seed) {
    const std::int64_t timed = timing_seed(r_.study, r_.size, name(arm), seed);
    const std::string parent =
        ab::run_parent((fs::path(folder_) / "timing" / out_.links[link]).string(), name(arm), timed);
    const auto [entry, fresh] = timings_.try_emplace(parent);
    if (!fresh) return entry->second ? &*entry->second : nullptr;
    const std::string who = fmt::format("timing of {}, seed {}, link {}", name(arm), timed, out_.links[link]);
    const int attempt = ab::newest_attempt(parent);
    if (attempt == 0) {
      missing(who + ": not run yet");
      return nullptr;
    }
    try {
      entry->second = ab::read_run((fs::path(parent) / std::to_string(attempt)).string(), ab::RunState::kAny);
    } catch (const Error& error) {
      missing(who + ": " + error.what());
      return nullptr;
    }
    if (entry->second->status != "completed") {
      missing(who + ": " + entry->second->status);
      entry->second.reset();
      return nullptr;
    }
    if (entry->second->time) splits_[{link, arm}].push_back(*entry->second->time);
    return &*entry->second;
  }

  std::optional<Curve> curve(std::size_t link, std::size_t arm, std::size_t s) {
    const RunResult& run = r_.arms[arm].runs[s];
    if (!run.value) return std::nullopt;  // already reported
    const std::string& metric = r_.study.metric;
    if (t_.links.empty()) {
      if (run.record->time) splits_[{link, arm}].push_back(*run.record->time);
      return timed_curve(*run.record, metric, slot_times(*run.record, metric));
    }
    const ab::RunRecord* timed = timing(link, arm, run.seed);
    if (timed == nullptr) return std::nullopt;
    const std::string who = fmt::format("{}, seed {}, link {}", name(arm), run.seed, out_.links[link]);
    if (const std::string why = other_messages(*run.record, *timed); !why.empty()) {
      missing(who + " is not timed: " + why);
      return std::nullopt;
    }
    std::optional<Curve> out = timed_curve(*run.record, metric, slot_times(*timed, metric));
    if (!out) missing(who + " is not timed: its timing run has fewer slots");
    return out;
  }

  ToThreshold reach(const Curves& curves, std::size_t arm, bool looser) const {
    ToThreshold out;
    std::vector<Bounded> seconds, gaps;
    const std::size_t base = baseline_[arm];
    const bool lower = r_.study.lower_is_better;
    for (std::size_t s = 0; s < seeds(); ++s) {
      out.runs.emplace_back();
      const auto threshold = out_.arms[arm].thresholds[s];
      if (!curves[arm][s] || !threshold) continue;
      const double wanted = looser ? looser_threshold(*threshold, t_.looser, lower) : *threshold;
      out.runs.back() = first_reach(*curves[arm][s], wanted, lower);
      seconds.push_back({out.runs.back()->at.seconds, !out.runs.back()->reached});
      if (arm == base || !curves[base][s]) continue;
      const Reach own = first_reach(*curves[base][s], wanted, lower);
      if (own.reached) gaps.push_back(time_gap(own.at.seconds, *out.runs.back()));
    }
    out.seconds = spread_of(std::move(seconds));
    out.gap = spread_of_upper(std::move(gaps));
    return out;
  }

  Used used(const ToThreshold& to) const {
    const auto of = [&](double CurvePoint::*what) {
      std::vector<Bounded> numbers;
      for (const auto& run : to.runs)
        if (run) numbers.push_back({run->at.*what, !run->reached});
      return spread_of(std::move(numbers));
    };
    return {of(&CurvePoint::step), of(&CurvePoint::trained), of(&CurvePoint::drawn), of(&CurvePoint::bytes)};
  }

  /// The metric of `arm` where the first of the arms with its baseline ends, along `axis`.
  std::optional<Spread> at_first_end(const Curves& curves, std::size_t arm, double CurvePoint::*axis) const {
    std::vector<Bounded> numbers;
    for (std::size_t s = 0; s < seeds(); ++s) {
      std::optional<double> end;
      for (std::size_t a = 0; a < curves.size(); ++a) {
        if (baseline_[a] != baseline_[arm] || !curves[a][s] || curves[a][s]->empty()) continue;
        const double its = curves[a][s]->back().*axis;
        end = end ? std::min(*end, its) : its;
      }
      if (!end || !curves[arm][s]) continue;
      if (const auto value = value_at(*curves[arm][s], axis, *end)) numbers.push_back({*value, false});
    }
    return spread_of(std::move(numbers));
  }

  void read_link(std::size_t l) {
    Curves curves(r_.arms.size());
    for (std::size_t a = 0; a < r_.arms.size(); ++a)
      for (std::size_t s = 0; s < seeds(); ++s) curves[a].push_back(curve(l, a, s));
    for (std::size_t a = 0; a < r_.arms.size(); ++a) {
      TimedArm& timed = out_.arms[a].links[l];
      timed.strict = reach(curves, a, false);
      timed.looser = reach(curves, a, true);
      timed.at_equal_time = at_first_end(curves, a, &CurvePoint::seconds);
      std::vector<Bounded> ends;
      for (const auto& c : curves[a])
        if (c && !c->empty()) ends.push_back({c->back().seconds, false});
      timed.total_seconds = spread_of(std::move(ends));
      timed.split = ab::mean_of(splits_[{l, a}]);
      if (l > 0) continue;  // the rest is the same under every link
      out_.arms[a].strict = used(timed.strict);
      out_.arms[a].looser = used(timed.looser);
      out_.arms[a].at_equal_samples = at_first_end(curves, a, &CurvePoint::trained);
    }
  }

  StudyResult& r_;
  const TimeTo& t_;
  std::string folder_;
  TimeToResult out_;
  std::vector<std::size_t> baseline_;                                                 // by arm
  std::map<std::string, std::optional<ab::RunRecord>> timings_;                       // by folder
  std::map<std::pair<std::size_t, std::size_t>, std::vector<ab::TimeSplit>> splits_;  // by link and arm
};

}  // namespace

SlotTimes slot_times(const ab::RunRecord& run, const std::string& metric) {
  std::map<std::int64_t, ab::MetricPoint> lines;
  for (const auto& [series, points] : run.series) {
    if (!series.starts_with("train/")) continue;
    for (const ab::MetricPoint& p : points) lines[p.step] = p;
  }
  std::map<std::int64_t, ab::MetricPoint> evaluations;
  if (const auto found = run.series.find(metric); found != run.series.end()) {
    for (const ab::MetricPoint& p : found->second) evaluations[p.step] = p;
  }
  SlotTimes out;
  double evaluating = 0, evaluation_bytes = 0;
  for (const auto& [step, line] : lines) {
    out.step.push_back(static_cast<double>(step));
    out.seconds.push_back(line.wall_s - evaluating);
    out.bytes.push_back(line.bytes_sent - evaluation_bytes);
    // A training line is written before the evaluation of its slot, the evaluation's own line right after it.
    if (const auto found = evaluations.find(step); found != evaluations.end()) {
      evaluating += found->second.wall_s - line.wall_s;
      evaluation_bytes += found->second.bytes_sent - line.bytes_sent;
    }
  }
  return out;
}

std::optional<Curve> timed_curve(const ab::RunRecord& run, const std::string& metric,
                                 const SlotTimes& times) {
  const auto found = run.series.find(metric);
  if (found == run.series.end()) return std::nullopt;
  // Written only once some slot of some replica made no gradient; until then all samples did.
  const auto trained = run.series.find("train/samples_trained");
  Curve out;
  for (const ab::MetricPoint& p : found->second) {
    const auto step = static_cast<double>(p.step);
    const auto seconds = times.seconds_at(step), bytes = times.bytes_at(step);
    if (!seconds || !bytes) return std::nullopt;
    CurvePoint point{.step = step,
                     .seconds = *seconds,
                     .drawn = p.samples,
                     .trained = p.samples,
                     .bytes = *bytes,
                     .value = p.value};
    if (trained != run.series.end()) {
      for (const ab::MetricPoint& t : trained->second)
        if (t.step == p.step) point.trained = t.value;
    }
    out.push_back(point);
  }
  return out;
}

void read_time_to_results(StudyResult& study, const std::string& folder) {
  study.time_to = Reader(study, folder).read();
  if (!study.study.time_to->links.empty())
    study.provenance.simulated.push_back("times to a loss under the links, and their parts");
}

}  // namespace tenon::reproduce
