// The life of a study of time to a loss up to its numbers; see time_to.hpp. Tables and figure are in
// time_to_table.cpp.
#include "reproduce/time_to.hpp"

#include "ab/study.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace tenon::reproduce {

// The table of the file.

namespace {

constexpr OptionSpec kTimeToOptions[] = {
    option::real("budget", "1")
        .between(0.01, 1)
        .doc_text("share of the baseline's slots at which its value is the threshold; 1 is its last value"),
    option::real("looser", "0.02")
        .between(0, 10)
        .doc_text("share of the baseline's last value by which a second threshold is easier"),
    option::texts("timing_set", "[]").doc_text("\"a.b=c\", for the runs that only time: a tiny batch"),
    option::texts("one_seed", "[]").doc_text("arms whose slots take the same time whatever the seed"),
};

constexpr OptionSpec kLinkOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("names the link and its folder"),
    option::texts("set", "[]").doc_text("\"transport.link={...}\" and what else makes the link"),
};

/// Keys that determine the number of slots and their messages: a timing run must not change them.
constexpr const char* kTimed[] = {"run.", "sync", "parallel", "transport", "schedule"};

bool begins_with_any(const std::string& text, std::span<const char* const> beginnings) {
  for (const char* beginning : beginnings)
    if (text.starts_with(beginning)) return true;
  return false;
}

}  // namespace

std::vector<config::TableSpecs> TimeTo::file_tables() const {
  return {{"time_to", kTimeToOptions}, {"time_to.link", kLinkOptions, true}};
}

void TimeTo::read(const Value& table) {
  OptionRequest request{.table = table, .owner = "time_to", .specs = option_list(kTimeToOptions)};
  request.other_keys.push_back("link");
  const Resolution found = resolve_options(request);
  budget = found.options->real("budget");
  looser = found.options->real("looser");
  timing_set = texts_of(*found.options, "timing_set");
  one_seed = texts_of(*found.options, "one_seed");
  const Value* list = table.find("link");
  for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i) {
    const Resolution link = resolve_options({.table = list->array()[i],
                                             .owner = fmt::format("time_to.link[{}]", i),
                                             .specs = option_list(kLinkOptions)});
    links.push_back({std::string(link.options->text("name")), texts_of(*link.options, "set")});
  }
}

void TimeTo::check(const StudyFile& study, Problems& problems) const {
  std::set<std::string> names;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const std::string key = fmt::format("time_to.link[{}]", i), &name = links[i].name;
    if (!ab::usable_as_folder(name))
      problems.say(key + ".name",
                   fmt::format("'{}' cannot name a folder; use letters, digits, '.', '_' and '-'", name));
    if (!names.insert(name).second)
      problems.say(key + ".name", fmt::format("two links are called '{}'", name));
    for (std::size_t s = 0; s < links[i].set.size(); ++s) {
      if (links[i].set[s].starts_with("transport")) continue;
      problems.say(fmt::format("{}.set[{}]", key, s),
                   fmt::format("'{}' is no setting of [transport]; anything else belongs to an arm or a size",
                               links[i].set[s]));
    }
  }
  for (std::size_t i = 0; i < timing_set.size(); ++i) {
    if (!begins_with_any(timing_set[i], kTimed)) continue;
    problems.say(
        fmt::format("time_to.timing_set[{}]", i),
        fmt::format("'{}' changes what is timed; a timing run differs in its data alone", timing_set[i]));
  }
  if (links.empty() && !timing_set.empty())
    problems.say("time_to.timing_set", "nothing is timed without [[time_to.link]]");
  for (std::size_t i = 0; i < one_seed.size(); ++i)
    problems.arm_named(fmt::format("time_to.one_seed[{}]", i), one_seed[i]);
  problems.alone(*this);
}

// Runs that only time.

namespace {

std::string leaf(const Value& root, const std::string& key) {
  const std::map<std::string, std::string> flat = flatten(root);
  const auto found = flat.find(key);
  return found == flat.end() ? "" : found->second;
}

std::string parameters(const ResolvedRun& run) {
  for (const std::string& fact : run.facts)
    if (fact.starts_with("parameters: ")) return fact;
  return "";
}

/// The study as the timing runs of one link see it.
StudyFile timing_study(const StudyFile& study, const TimeToLink& link) {
  StudyFile out = study;
  out.name = fmt::format("{}, timing of link '{}',", study.name, link.name);
  for (StudyArm& arm : out.arms) {
    std::vector<std::string>& set = arm.arm.set;
    set.insert(set.end(), link.set.begin(), link.set.end());
    set.insert(set.end(), study.as<TimeTo>().timing_set.begin(), study.as<TimeTo>().timing_set.end());
    set.insert(set.end(), {"run.eval_every=0", "run.eval_batches=1"});
    arm.may_fail = false;
  }
  return out;
}

void require_comparable(const StudyFile& study, const TimeToLink& link, const Plan& runs,
                        const Plan& timing) {
  for (std::size_t a = 0; a < timing.arms.size(); ++a) {
    const std::string who = fmt::format("tenon reproduce: {}: link '{}', arm '{}'", study.path, link.name,
                                        study.arms[a].arm.name);
    const std::string clock = leaf(timing.arms[a].root, "transport.clock.type");
    if (clock != "\"simulated\"") {
      fail_config(
          fmt::format("{}: a timing run needs the simulated clock, found transport.clock.type = {}; say "
                      "transport.clock = {{type = \"simulated\", compute_seconds = ...}} in the link's set",
                      who, clock.empty() ? "absent" : clock));
    }
    const std::string here = parameters(timing.arms[a]), there = parameters(runs.arms[a]);
    if (here != there) {
      fail_config(fmt::format(
          "{}: the timing run has other parameters: expected '{}', found '{}'; keep in timing_set "
          "what decides their shapes, e.g. model.context",
          who, there, here));
    }
  }
}

}  // namespace

std::int64_t timing_seed(const StudyFile& study, const Size& size, const std::string& arm,
                         std::int64_t seed) {
  const std::vector<std::string>& one = study.as<TimeTo>().one_seed;
  return std::find(one.begin(), one.end(), arm) != one.end() ? size.seeds.front() : seed;
}

std::vector<TimingPlan> make_timing_plans(const StudyFile& study, const Size& size, const Plan& runs,
                                          const ab::RunnerOptions& options, const Resolver& resolve) {
  std::vector<TimingPlan> out;
  for (const TimeToLink& link : study.as<TimeTo>().links) {
    TimingPlan timing;
    timing.link = link.name;
    timing.folder = (std::filesystem::path(options.folder) / "timing" / link.name).string();
    ab::RunnerOptions runner = options;
    runner.folder = timing.folder;
    timing.plan = make_plan(timing_study(study, link), size, runner, resolve);
    require_comparable(study, link, runs, timing.plan);
    std::erase_if(timing.plan.runs, [&](const PlannedRun& run) {
      return timing_seed(study, size, study.arms[run.job.arm].arm.name, run.job.seed) != run.job.seed;
    });
    out.push_back(std::move(timing));
  }
  return out;
}

void require_lines_at_evaluations(const StudyFile& study, const Plan& runs) {
  for (std::size_t a = 0; a < runs.arms.size(); ++a) {
    const std::string every = leaf(runs.arms[a].root, "run.eval_every");
    const std::string lines = leaf(runs.arms[a].root, "run.log_every");
    if (every.empty() || lines.empty() || std::stoll(every) % std::stoll(lines) == 0) continue;
    fail_config(
        fmt::format("tenon reproduce: {}: arm '{}': time to a loss needs a training line at each evaluation: "
                    "expected run.eval_every to be a multiple of run.log_every, found {} and {}",
                    study.path, study.arms[a].arm.name, every, lines));
  }
}

void TimeTo::check_plan(const StudyFile& given, const Size&, const Plan& plan) const {
  require_lines_at_evaluations(given, plan);
}

std::vector<FurtherRuns> TimeTo::further_runs(const StudyFile& study, const Size& size, const Plan& plan,
                                              const ab::RunnerOptions& runner,
                                              const Resolver& resolve) const {
  std::vector<FurtherRuns> out;
  for (TimingPlan& timing : make_timing_plans(study, size, plan, runner, resolve))
    out.push_back({fmt::format("reproduce, timing {}:", timing.link), timing.folder, std::move(timing.plan)});
  return out;
}

// Crossings and spreads.

namespace {

double between(double from, double to, double share) {
  return from + share * (to - from);
}

CurvePoint between(const CurvePoint& a, const CurvePoint& b, double share) {
  return {.step = between(a.step, b.step, share),
          .seconds = between(a.seconds, b.seconds, share),
          .drawn = between(a.drawn, b.drawn, share),
          .trained = between(a.trained, b.trained, share),
          .bytes = between(a.bytes, b.bytes, share),
          .value = between(a.value, b.value, share)};
}

/// Known numbers in order, then the censored ones in order of their bounds.
bool before(const Bounded& a, const Bounded& b) {
  return a.bound != b.bound ? b.bound : a.value < b.value;
}

std::optional<double> on_line(const std::vector<double>& x, const std::vector<double>& y, double at) {
  const auto next = std::lower_bound(x.begin(), x.end(), at);
  if (next == x.end()) return std::nullopt;
  const std::size_t i = next - x.begin();
  const double x0 = i == 0 ? 0 : x[i - 1], y0 = i == 0 ? 0 : y[i - 1];
  return x[i] > x0 ? between(y0, y[i], (at - x0) / (x[i] - x0)) : y[i];
}

}  // namespace

Reach first_reach(const Curve& curve, double threshold, bool lower_is_better) {
  const auto there = [&](double value) { return lower_is_better ? value <= threshold : value >= threshold; };
  for (std::size_t i = 0; i < curve.size(); ++i) {
    if (!there(curve[i].value)) continue;  // a NaN is not a place on the curve
    if (i == 0 || !std::isfinite(curve[i - 1].value) || !std::isfinite(curve[i].value))
      return {true, curve[i]};
    const double from = curve[i - 1].value;
    return {true, between(curve[i - 1], curve[i], (from - threshold) / (from - curve[i].value))};
  }
  return {false, curve.empty() ? CurvePoint() : curve.back()};
}

double looser_threshold(double threshold, double share, bool lower_is_better) {
  return threshold + (lower_is_better ? 1 : -1) * share * std::abs(threshold);
}

std::optional<double> value_at(const Curve& curve, double CurvePoint::*axis, double x) {
  if (curve.empty() || x < curve.front().*axis) return std::nullopt;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double here = curve[i].*axis;
    if (here < x) continue;
    if (i == 0 || here == x) return curve[i].value;
    const double last = curve[i - 1].*axis;
    return between(curve[i - 1].value, curve[i].value, (x - last) / (here - last));
  }
  return std::nullopt;
}

std::optional<Spread> spread_of(std::vector<Bounded> numbers) {
  if (numbers.empty()) return std::nullopt;
  std::sort(numbers.begin(), numbers.end(), before);
  Spread out;
  out.n = numbers.size();
  out.censored = static_cast<std::size_t>(
      std::count_if(numbers.begin(), numbers.end(), [](const Bounded& b) { return b.bound; }));
  out.low = numbers.front();
  out.high = numbers.back();
  const Bounded &a = numbers[(out.n - 1) / 2], &b = numbers[out.n / 2];
  // Between a known number and a bound, all that is known is that it is beyond their middle.
  out.median = {(a.value + b.value) / 2, a.bound || b.bound};
  return out;
}

std::optional<Spread> spread_of_upper(std::vector<Bounded> numbers) {
  for (Bounded& b : numbers) b.value = -b.value;
  std::optional<Spread> out = spread_of(std::move(numbers));
  if (!out) return out;
  for (Bounded* b : {&out->median, &out->low, &out->high}) b->value = -b->value;
  std::swap(out->low, out->high);
  return out;
}

Bounded time_gap(double baseline_seconds, const Reach& arm) {
  return {100 * (baseline_seconds - arm.at.seconds) / baseline_seconds, !arm.reached};
}

std::optional<double> SlotTimes::seconds_at(double slot) const {
  return on_line(step, seconds, slot);
}

std::optional<double> SlotTimes::bytes_at(double slot) const {
  return on_line(step, bytes, slot);
}

// Re-timed trajectories, and the numbers derived from them.

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
      : r_(study), t_(study.study.as<TimeTo>()), folder_(std::move(folder)) {}

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
  study.numbers = std::make_shared<TimeToResult>(Reader(study, folder).read());
  if (!study.study.as<TimeTo>().links.empty())
    study.provenance.simulated.push_back("times to a loss under the links, and their parts");
}

void TimeTo::read_numbers(StudyResult& result, const Plan&, const std::string& folder) const {
  read_time_to_results(result, folder);
}

std::shared_ptr<StudyKind> make_time_to_kind() {
  return std::make_shared<TimeTo>();
}

}  // namespace tenon::reproduce
