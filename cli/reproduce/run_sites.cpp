// The life of a study of runs' sites; see run_sites.hpp.
#include "reproduce/run_sites.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace tenon::reproduce {

// The table of the file.

namespace {

constexpr OptionSpec kRunSitesOptions[] = {
    option::path("site", nullptr).mandatory().doc_text("of `tenon power`: levels, limits, workers"),
    option::texts("set", "[]").doc_text("\"power.repeat=10\", over it"),
    option::real("compute_s", nullptr)
        .mandatory()
        .between(1e-6, 1e6)
        .in_unit("s")
        .doc_text("of a slot, as the clock declares it: forward, backward and update"),
    option::real("exchange_s", nullptr)
        .mandatory()
        .between(0, 1e6)
        .in_unit("s")
        .doc_text("of all parameters over the link of the runs"),
    option::integer("first", "0").at_least(0).in_unit("slots").doc_text("slot from which phases count"),
    option::real("tolerance", "0.05").between(0, 1).doc_text("largest relative difference to a closed form"),
};

constexpr OptionSpec kRunSiteArmOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("of which the following holds"),
    option::integer("slots", "1").between(1, 1000000).in_unit("slots").doc_text("of a round"),
    option::boolean("closed_form", "false")
        .doc_text("a round is `slots` times compute_s, then exchange_s, and nothing overlaps"),
};

}  // namespace

std::vector<config::TableSpecs> RunSites::file_tables() const {
  return {{"run_sites", kRunSitesOptions}, {"run_sites.arm", kRunSiteArmOptions, true}};
}

void RunSites::read(const Value& table) {
  OptionRequest request{.table = table, .owner = "run_sites", .specs = option_list(kRunSitesOptions)};
  request.other_keys = {"arm"};
  const Resolution found = resolve_options(request);
  site = std::string(found.options->text("site"));
  set = texts_of(*found.options, "set");
  compute_s = found.options->real("compute_s");
  exchange_s = found.options->real("exchange_s");
  first = found.options->integer("first");
  tolerance = found.options->real("tolerance");
  const Value* list = table.find("arm");
  for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i) {
    const Resolution one = resolve_options({.table = list->array()[i],
                                            .owner = fmt::format("run_sites.arm[{}]", i),
                                            .specs = option_list(kRunSiteArmOptions)});
    cases.push_back({std::string(one.options->text("arm")), one.options->integer("slots"),
                     one.options->boolean("closed_form")});
  }
}

RoundCase RunSites::of(const std::string& arm) const {
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const RoundCase& one) { return one.arm == arm; });
  return found == cases.end() ? RoundCase{.arm = arm} : *found;
}

void RunSites::check(const StudyFile& study, Problems& problems) const {
  problems.alone(*this);
  std::set<std::string> names;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto key = [&](const char* name) { return fmt::format("run_sites.arm[{}].{}", i, name); };
    problems.arm_named(key("arm"), cases[i].arm);
    if (!names.insert(cases[i].arm).second)
      problems.say(key("arm"), fmt::format("arm '{}' has an entry already", cases[i].arm));
    if (first % cases[i].slots != 0)
      problems.say(key("slots"), fmt::format("slot {}, from which phases count, begins no round of {} slots",
                                             first, cases[i].slots));
    for (const Size& size : study.sizes) {
      if ((size.steps - first) % cases[i].slots != 0)
        problems.say(fmt::format("size.{}.steps", size.name),
                     fmt::format("{} slots from slot {} are no whole rounds of {} slots (arm '{}')",
                                 size.steps - first, first, cases[i].slots, cases[i].arm));
    }
  }
  for (const Size& size : study.sizes) {
    if (size.steps <= first)
      problems.say(fmt::format("size.{}.steps", size.name),
                   fmt::format("expected more than run_sites.first, which is {}", first));
  }
}

// Runs and their loads.

StudyFile RunSites::as_runs(const StudyFile& given, const Size& size, const std::string& folder) const {
  StudyFile study = given;
  for (StudyArm& arm : study.arms) {
    arm.arm.set.push_back(fmt::format("observe=[{{type=\"trace\", first={}}}]", first));
    arm.added = 1;
  }
  return study;
}

double round_duty(std::int64_t slots, double compute_s, double exchange_s) {
  const double computing = static_cast<double>(slots) * compute_s;
  return computing / (computing + exchange_s);
}

double variance_ratio(double duty, double duty_of_first) {
  return duty * (1 - duty) / (duty_of_first * (1 - duty_of_first));
}

double LoadArm::mean(double RunLoad::*value) const {
  double sum = 0;
  for (const RunLoad& run : runs) sum += run.*value;
  return sum / static_cast<double>(runs.size());
}

double LoadArm::mean_of(double power::Reading::*value) const {
  double sum = 0;
  for (const RunLoad& run : runs) sum += run.reading.*value;
  return sum / static_cast<double>(runs.size());
}

RunLoad load_of_run(const power::SimulatedSite& site, std::int64_t seed, std::int64_t slots,
                    std::optional<double> reference) {
  RunLoad load;
  load.seed = seed;
  double computing = 0, all = 0, begin = site.plan.logs[0].begin_s(), end = site.plan.logs[0].end_s();
  for (const power::PhaseLog& log : site.plan.logs) {
    begin = std::min(begin, log.begin_s()), end = std::max(end, log.end_s());
    all += log.end_s() - log.begin_s();
    for (const power::Phase& phase : log.phases) {
      if (phase.name == "forward" || phase.name == "backward" || phase.name == "optimizer")
        computing += phase.end_s - phase.begin_s;
    }
  }
  load.duty = computing / all;
  load.slot_s = (end - begin) / static_cast<double>(site.plan.repeat * slots);
  load.rated_watts = site.plan.site_rated_watts();
  const power::Trace& trace = site.result.stages.front().measured;
  const double mean = power::mean_of(trace.watts);
  double squares = 0;
  for (const double watts : trace.watts) squares += (watts - mean) * (watts - mean);
  load.variance = squares / static_cast<double>(trace.watts.size()) / (load.rated_watts * load.rated_watts);
  const power::Spectrum spectrum(trace, power::Window::kHann);
  load.reading = power::measure(trace, spectrum, reference.value_or(spectrum.mean_square()), site.plan.spec,
                                load.rated_watts, false);
  load.shown = shown_part(trace, load.rated_watts);
  return load;
}

LoadNumbers load_numbers(const RunSites& kind, const RunSitesResult& result, const LoadArm& arm) {
  LoadNumbers out;
  out.duty = arm.mean(&RunLoad::duty);
  out.slot_s = arm.mean(&RunLoad::slot_s);
  const auto slots = static_cast<double>(arm.rounds.slots);
  out.closed_hz = 1 / (slots * out.slot_s);
  if (arm.rounds.closed_form) {
    out.closed_duty = round_duty(arm.rounds.slots, kind.compute_s, kind.exchange_s);
    out.closed_ratio = variance_ratio(*out.closed_duty, round_duty(1, kind.compute_s, kind.exchange_s));
    out.closed_hz = 1 / (slots * kind.compute_s + kind.exchange_s);
  }
  out.hz = arm.mean_of(&power::Reading::peak_hz);
  out.ratio_by_duty = variance_ratio(out.duty, result.first_duty);
  out.ratio = arm.mean(&RunLoad::variance) / result.first_variance;
  double rated = 0;
  for (const RunLoad& run : arm.runs) rated += run.rated_watts / static_cast<double>(arm.runs.size());
  out.range = arm.mean_of(&power::Reading::range) / rated;
  out.band_percent = 100 * arm.mean_of(&power::Reading::band_share);
  return out;
}

namespace {

std::vector<std::string> site_sets(const RunSites& kind, const std::string& run) {
  std::vector<std::string> sets = kind.set;
  sets.push_back("power.phase=[]");
  sets.push_back("power.policy=[]");
  sets.push_back(fmt::format("power.trace=\"{}\"", run));
  return sets;
}

/// "diloco-8: duty 0.9, by closed form 0.8"; "" within the tolerance.
std::string apart(const std::string& arm, const char* what, double value, std::optional<double> closed,
                  double tolerance) {
  if (!closed || std::abs(value / *closed - 1) <= tolerance) return "";
  return fmt::format("{}: {} {:.4g}, by closed form {:.4g}", arm, what, value, *closed);
}

}  // namespace

Outcome RunSites::run(const StudyFile& study, const Size& size, const Request& request,
                      ab::RunnerOptions runner) const {
  Outcome out = Arms::run(study, size, request, std::move(runner));
  StudyResult& r = out.result;
  auto numbers = std::make_shared<RunSitesResult>();
  const std::int64_t slots = size.steps - first;
  const auto simulated = [&](std::size_t arm, const RunResult& run) {
    try {
      return request.simulate_site(site, site_sets(*this, run.record->folder), {});
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("tenon reproduce: {} at size {}: arm '{}', seed {}: {}", study.name, size.name,
                              study.arms[arm].arm.name, run.seed, error.what()));
    }
  };
  // The energy of the baseline, of which all others' bands are shares.
  std::map<std::int64_t, double> reference;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    if (study.arms[a].arm.name != study.baseline) continue;
    for (const RunResult& run : r.arms[a].runs) {
      if (run.status != "completed" || !run.record) continue;
      const power::SimulatedSite one = simulated(a, run);
      reference[run.seed] =
          power::Spectrum(one.result.stages.front().measured, power::Window::kHann).mean_square();
    }
  }
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    LoadArm arm{a, of(study.arms[a].arm.name), {}};
    for (const RunResult& run : r.arms[a].runs) {
      if (run.status != "completed" || !run.record || !reference.contains(run.seed)) continue;
      const power::SimulatedSite one = simulated(a, run);
      arm.runs.push_back(load_of_run(one, run.seed, slots, reference[run.seed]));
      numbers->band_low_hz = one.plan.spec.band_low_hz;
      numbers->band_high_hz = arm.runs.back().reading.band_high_hz;
      for (const std::string& note : one.plan.notes) r.warnings.push_back(note);
    }
    if (arm.runs.empty()) continue;
    if (study.arms[a].arm.name == study.baseline) {
      numbers->first_duty = arm.mean(&RunLoad::duty);
      numbers->first_variance = arm.mean(&RunLoad::variance);
    }
    numbers->arms.push_back(std::move(arm));
  }
  for (const LoadArm& arm : numbers->arms) {
    const LoadNumbers n = load_numbers(*this, *numbers, arm);
    const std::string& name = study.arms[arm.arm].arm.name;
    for (const std::string& line :
         {apart(name, "duty", n.duty, n.closed_duty, tolerance),
          apart(name, "variance of the baseline's", n.ratio, n.closed_ratio, tolerance),
          apart(name, "line in Hz", n.hz,
                arm.rounds.closed_form ? std::optional<double>(n.closed_hz) : std::nullopt, tolerance)}) {
      if (line.empty()) continue;
      r.complete = false;
      r.warnings.push_back(line);
    }
  }
  r.numbers = std::move(numbers);
  r.provenance.simulated.emplace_back("duty and time of a slot in the trace");
  return out;
}

// Tables.

namespace {

using ab::fixed;

std::string maybe(const std::optional<double>& value, int digits) {
  return value ? fixed(*value, digits) : kNoValue;
}

}  // namespace

std::string RunSites::tables(const StudyResult& r) const {
  const RunSitesResult& numbers = r.as<RunSitesResult>();
  std::string rhythm = head({"strategy", "slots of a round", "slot, s, simulated", "duty, computed",
                             "duty, simulated", "line, Hz, computed", "line, Hz, modelled"});
  const std::string band = fmt::format("band {:g} to {:g} Hz, % of the energy of {}, modelled",
                                       numbers.band_low_hz, numbers.band_high_hz, r.study.baseline);
  std::string swing = head({"strategy", "range, rated powers, modelled", band,
                            fmt::format("variance over that of {}: computed from c and m", r.study.baseline),
                            "computed from the simulated duties", "modelled", "off the duties', %"});
  for (const LoadArm& arm : numbers.arms) {
    const LoadNumbers n = load_numbers(*this, numbers, arm);
    const std::string& title = r.study.arms[arm.arm].title;
    rhythm += row({title, std::to_string(arm.rounds.slots), fixed(n.slot_s, 4), maybe(n.closed_duty, 4),
                   fixed(n.duty, 4), fixed(n.closed_hz, 4), fixed(n.hz, 4)});
    swing += row({title, fixed(n.range, 3), fixed(n.band_percent, 2), maybe(n.closed_ratio, 4),
                  fixed(n.ratio_by_duty, 4), fixed(n.ratio, 4), ab::fixed_signed(100 * n.off_duty(), 2)});
  }
  return "### Rhythm of the load\n\n" + rhythm +
         fmt::format(
             "\nComputed, with c = {:g} s and m = {:g} s: duty H c / (H c + m), line 1 / (H c + m). Where no "
             "closed form is claimed, the line computed is 1 / (H T) with the slot's T as simulated. The "
             "line "
             "modelled is the highest of the metered spectrum.\n",
             compute_s, exchange_s) +
         "\n### Swing of the load\n\n" + swing +
         "\nVariance computed: d (1 - d) / (d_1 (1 - d_1)), d_1 of the baseline. It holds for loads of two "
         "levels that all workers have at once.\n";
}

std::string RunSites::every_run(const StudyResult& r) const {
  std::string out =
      "\n## Every load, modelled\n\n" + head({"arm", "seed", "slot, s", "duty", "mean, rated", "range",
                                              "variance", "line, Hz", "line's amplitude", "band share, %"});
  for (const LoadArm& arm : r.as<RunSitesResult>().arms) {
    for (const RunLoad& run : arm.runs)
      out += row({r.study.arms[arm.arm].arm.name, std::to_string(run.seed), fixed(run.slot_s, 5),
                  fixed(run.duty, 5), fixed(run.reading.mean / run.rated_watts, 4),
                  fixed(run.reading.range / run.rated_watts, 4), fixed(run.variance, 5),
                  fixed(run.reading.peak_hz, 4), fixed(run.reading.peak_amplitude / run.rated_watts, 4),
                  fixed(100 * run.reading.band_share, 2)});
  }
  return out + Arms::every_run(r);
}

void RunSites::json(JsonWriter& json, const StudyResult& r) const {
  const RunSitesResult& numbers = r.as<RunSitesResult>();
  json.objects("run_sites", numbers.arms, [&](const LoadArm& arm) {
    const LoadNumbers n = load_numbers(*this, numbers, arm);
    json.member("arm", r.study.arms[arm.arm].arm.name);
    json.member("title", r.study.arms[arm.arm].title);
    json.member("slots_of_round", arm.rounds.slots);
    json.member("duty_computed", n.closed_duty.value_or(JsonWriter::kNull));
    json.member("duty_simulated", n.duty);
    json.member("slot_s_simulated", n.slot_s);
    json.member("line_hz_computed", n.closed_hz);
    json.member("line_hz_modelled", n.hz);
    json.member("range_modelled", n.range);
    json.member("band_percent_modelled", n.band_percent);
    json.member("variance_ratio_computed", n.closed_ratio.value_or(JsonWriter::kNull));
    json.member("variance_ratio_of_duties", n.ratio_by_duty);
    json.member("variance_ratio_modelled", n.ratio);
    json.objects("runs", arm.runs, [&](const RunLoad& run) {
      json.member("seed", run.seed);
      json.member("duty_simulated", run.duty);
      json.member("variance_modelled", run.variance);
      json.member("range_modelled", run.reading.range / run.rated_watts);
      json.member("band_share_modelled", run.reading.band_share);
      json.member("line_hz_modelled", run.reading.peak_hz);
    });
  });
  paper_values_json(json, r);
}

std::string RunSites::lines(const StudyResult& r) const {
  const RunSitesResult& numbers = r.as<RunSitesResult>();
  std::string out = "  modelled:\n";
  for (const LoadArm& arm : numbers.arms) {
    const LoadNumbers n = load_numbers(*this, numbers, arm);
    out +=
        fmt::format("  {:<24}duty {}, line {} Hz, range {}, band {} %, variance {} of {}'s ({} by duty)\n",
                    r.study.arms[arm.arm].arm.name, fixed(n.duty, 3), fixed(n.hz, 3), fixed(n.range, 2),
                    fixed(n.band_percent, 1), fixed(n.ratio, 3), r.study.baseline, fixed(n.ratio_by_duty, 3));
  }
  return out;
}

std::string RunSites::figure(const StudyResult& r) const {
  std::vector<LoadPanel> panels;
  for (const LoadArm& arm : r.as<RunSitesResult>().arms)
    panels.push_back({r.study.arms[arm.arm].title, arm.runs.front().shown});
  return load_figure(r, "power of the site over its rated power, the last 20 s, first seed; modelled",
                     panels);
}

std::shared_ptr<StudyKind> make_run_sites_kind() {
  return std::make_shared<RunSites>();
}

}  // namespace tenon::reproduce
