// The life of a study of fillers; see filler.hpp.
#include "reproduce/filler.hpp"

#include "ab/format.hpp"
#include "ab/statistics.hpp"
#include "base/json_writer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace tenon::reproduce {

// The table of the file.

namespace {

constexpr OptionSpec kFillerOptions[] = {
    option::path("site", nullptr).mandatory().doc_text("of `tenon power`: levels, limits, workers, phases"),
    option::texts("set", "[]").doc_text("\"power.repeat=10\", over it"),
    option::text("policy", nullptr)
        .mandatory()
        .doc_text("options of the filler at each worker, as in a table; without n_on and period_s"),
    option::real("period_s", "0.001")
        .between(1e-6, 1)
        .in_unit("s")
        .doc_text("between two looks of the filler"),
    option::reals("delays_s", nullptr)
        .mandatory()
        .between(0, 10)
        .in_unit("s")
        .doc_text("from the beginning of a wait to that of filling"),
};

}  // namespace

std::vector<config::TableSpecs> FillerStudy::file_tables() const {
  return {{"filler", kFillerOptions}};
}

void FillerStudy::read(const Value& table) {
  const Resolution found =
      resolve_options({.table = table, .owner = "filler", .specs = option_list(kFillerOptions)});
  site = std::string(found.options->text("site"));
  set = texts_of(*found.options, "set");
  policy = std::string(found.options->text("policy"));
  period_s = found.options->real("period_s");
  const auto delays = found.options->reals("delays_s");
  delays_s.assign(delays.begin(), delays.end());
}

void FillerStudy::check(const StudyFile&, Problems& problems) const {
  problems.alone(*this);
  if (delays_s.empty()) problems.say("filler.delays_s", "expected at least one delay");
  for (const double delay : delays_s) {
    if (delay >= period_s) continue;
    problems.say("filler.delays_s",
                 fmt::format("{:g} s is shorter than filler.period_s, {:g} s", delay, period_s));
  }
}

// Simulations and runs.

namespace {

LateFiller late_filler(const power::SimulatedSite& site, std::optional<double> delay_s) {
  LateFiller out;
  out.delay_s = delay_s;
  const power::Stage& first = site.result.stages.front();
  const power::Stage& last = site.result.stages.back();
  const double rated = site.plan.site_rated_watts();
  out.band_share = last.reading.band_share;
  out.range = last.reading.range / rated;
  out.energy_percent = 100 * (last.energy_j / first.energy_j - 1);
  out.shown = shown_part(last.measured, rated);
  return out;
}

FilledRun filled_run(const RunResult& run, FileSystem& files) {
  FilledRun out;
  const ab::RunRecord& record = *run.record;
  out.seed = run.seed;
  out.slot_s = record.wall_s / record.steps;
  out.mean = out.lowest = out.highest = std::numeric_limits<double>::quiet_NaN();
  for (const report::PowerRecord& power : report::read_power(files, record.folder)) {
    if (power.file != "power.rank0") continue;
    out.mean = power.mean, out.lowest = power.lowest, out.highest = power.highest;
    out.account = power.account;
  }
  return out;
}

double fact_of(const FilledRun& run, const std::string& name) {
  for (const auto& [fact, value] : run.account)
    if (fact == name) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> values_of(const FilledArm& arm, double FilledRun::*member) {
  std::vector<double> out;
  for (const FilledRun& run : arm.runs)
    if (std::isfinite(run.*member)) out.push_back(run.*member);
  return out;
}

std::string pair_spread_text(const std::vector<double>& values, int digits) {
  if (values.empty()) return kNoValue;
  const PairSpread spread = pair_spread(values);
  return fmt::format("{} ({} to {})", ab::fixed(spread.median, digits), ab::fixed(spread.low, digits),
                     ab::fixed(spread.high, digits));
}

}  // namespace

PairSpread pair_spread(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, ab::median(values), *high};
}

Outcome FillerStudy::run(const StudyFile& study, const Size& size, const Request& request,
                         ab::RunnerOptions runner) const {
  Outcome out = Arms::run(study, size, request, std::move(runner));
  StudyResult& r = out.result;
  auto numbers = std::make_shared<FillerResult>();
  const auto simulated = [&](const std::string& policies, std::optional<double> delay_s) {
    std::vector<std::string> sets = set;
    sets.push_back("power.policy=" + policies);
    numbers->late.push_back(late_filler(request.simulate_site(site, sets, {}), delay_s));
  };
  simulated("[]", std::nullopt);
  for (const double delay : delays_s) {
    simulated(fmt::format("[{{at=\"worker\", type=\"filler\", period_s={}, n_on={}, {}}}]", period_s,
                          std::llround(delay / period_s), policy),
              delay);
  }

  const auto files = make_posix_files();
  std::map<std::int64_t, const RunResult*> baseline;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    if (study.arms[a].arm.name != study.baseline) continue;
    for (const RunResult& run : r.arms[a].runs)
      if (run.status == "completed" && run.record) baseline[run.seed] = &run;
  }
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    FilledArm arm{a, {}};
    for (const RunResult& run : r.arms[a].runs) {
      const auto beside = baseline.find(run.seed);
      if (run.status != "completed" || !run.record || beside == baseline.end()) continue;
      FilledRun filled = filled_run(run, *files);
      filled.time_ratio = run.record->wall_s / beside->second->record->wall_s;
      filled.same_weights = run.record->weights_hash == beside->second->record->weights_hash;
      if (!filled.same_weights) {
        r.complete = false;
        r.warnings.push_back(fmt::format("arm '{}', seed {}: other weights than those of '{}'",
                                         study.arms[a].arm.name, run.seed, study.baseline));
      }
      arm.runs.push_back(std::move(filled));
    }
    if (!arm.runs.empty()) numbers->arms.push_back(std::move(arm));
  }
  r.numbers = std::move(numbers);
  return out;
}

// Tables.

std::string FillerStudy::tables(const StudyResult& r) const {
  const FillerResult& numbers = r.as<FillerResult>();
  std::string late = head({"filling starts after", "band share, %", "range, rated powers", "energy, %"});
  for (const LateFiller& one : numbers.late)
    late += row({one.delay_s ? fmt::format("{:g} ms", 1e3 * *one.delay_s) : "no filler",
                 ab::fixed(100 * one.band_share, 2), ab::fixed(one.range, 3),
                 ab::fixed_signed(one.energy_percent, 2)});
  std::string real =
      head({"arm", "slot, ms", fmt::format("time over that of {}", r.study.baseline), "equal weights",
            "activity, mean", "lowest", "highest", "fills", "filled, % of the waits",
            "block, 99 %, us of CPU time", "drain, 99 %, us of CPU time"});
  for (const FilledArm& arm : numbers.arms) {
    const auto facts = [&](const std::string& name, double scale, int digits) {
      std::vector<double> values;
      for (const FilledRun& run : arm.runs)
        if (const double value = fact_of(run, name); std::isfinite(value)) values.push_back(scale * value);
      return values.empty() ? kNoValue : ab::fixed(ab::median(values), digits);
    };
    std::vector<double> slots = values_of(arm, &FilledRun::slot_s), shares;
    for (double& slot : slots) slot *= 1e3;
    for (const FilledRun& run : arm.runs) {
      const double to_fill_s = fact_of(run, "phases_s") * fact_of(run, "threads");
      const double share = 100 * fact_of(run, "cpu_s") / to_fill_s;
      if (std::isfinite(share)) shares.push_back(share);
    }
    const auto equal = std::count_if(arm.runs.begin(), arm.runs.end(),
                                     [](const FilledRun& run) { return run.same_weights; });
    real += row({r.study.arms[arm.arm].title, pair_spread_text(slots, 1),
                 pair_spread_text(values_of(arm, &FilledRun::time_ratio), 3),
                 fmt::format("{} of {}", equal, arm.runs.size()),
                 pair_spread_text(values_of(arm, &FilledRun::mean), 3),
                 pair_spread_text(values_of(arm, &FilledRun::lowest), 3),
                 pair_spread_text(values_of(arm, &FilledRun::highest), 3), facts("fills", 1, 0),
                 shares.empty() ? kNoValue : ab::fixed(ab::median(shares), 1), facts("block_p99_s", 1e6, 0),
                 facts("drain_cpu_p99_s", 1e6, 0)});
  }
  return "### How late a filler may start, modelled\n\n" + late +
         "\nBand share: energy in the critical band over that without a filler. The delay is from the "
         "beginning of a "
         "wait; a filler that hears phases starts when a thread has woken, one that polls up to a period "
         "later.\n"
         "\n### What the real filler does here, measured\n\n" +
         real +
         "\nMedian over the seeds, and in brackets the lowest and the highest. Runs of one seed alternate in "
         "going first. Activity is the share of this machine's cores that are busy, a proxy and no power. "
         "Filled "
         "is the CPU time of rank 0's filler over the waits of its training thread.\n";
}

std::string FillerStudy::every_run(const StudyResult& r) const {
  std::string out = "\n## Every run, measured\n\n" + head({"arm", "seed", "slot, ms", "time ratio",
                                                           "equal weights", "activity", "account of rank 0"});
  for (const FilledArm& arm : r.as<FillerResult>().arms) {
    for (const FilledRun& run : arm.runs) {
      std::string account;
      for (const auto& [name, value] : run.account)
        account += fmt::format("{}{} {:.4g}", account.empty() ? "" : ", ", name, value);
      out += row({r.study.arms[arm.arm].arm.name, std::to_string(run.seed), ab::fixed(1e3 * run.slot_s, 2),
                  ab::fixed(run.time_ratio, 4), run.same_weights ? "yes" : "no", ab::fixed(run.mean, 4),
                  account.empty() ? kNoValue : account});
    }
  }
  return out + Arms::every_run(r);
}

void FillerStudy::json(JsonWriter& json, const StudyResult& r) const {
  const FillerResult& numbers = r.as<FillerResult>();
  json.objects("filler_modelled", numbers.late, [&](const LateFiller& one) {
    json.member("delay_s", one.delay_s.value_or(JsonWriter::kNull));
    json.member("band_share", one.band_share);
    json.member("range", one.range);
    json.member("energy_percent", one.energy_percent);
  });
  json.objects("filler_measured", numbers.arms, [&](const FilledArm& arm) {
    json.member("arm", r.study.arms[arm.arm].arm.name);
    json.objects("runs", arm.runs, [&](const FilledRun& run) {
      json.member("seed", run.seed);
      json.member("slot_s", run.slot_s);
      json.member("time_ratio", run.time_ratio);
      json.member("same_weights", run.same_weights);
      json.member("activity_mean", run.mean);
      json.member("activity_lowest", run.lowest);
      json.member("activity_highest", run.highest);
      json.begin_object("account");
      for (const auto& [name, value] : run.account) json.member(name, value);
      json.end_object();
    });
  });
  paper_values_json(json, r);
}

std::string FillerStudy::lines(const StudyResult& r) const {
  const FillerResult& numbers = r.as<FillerResult>();
  std::string out = "  modelled:\n";
  for (const LateFiller& one : numbers.late)
    out += fmt::format("  {:<24}band {} %, range {}, energy {} %\n",
                       one.delay_s ? fmt::format("after {:g} ms", 1e3 * *one.delay_s) : "no filler",
                       ab::fixed(100 * one.band_share, 2), ab::fixed(one.range, 3),
                       ab::fixed_signed(one.energy_percent, 2));
  out += "  measured:\n";
  for (const FilledArm& arm : numbers.arms) {
    const bool equal =
        std::all_of(arm.runs.begin(), arm.runs.end(), [](const FilledRun& run) { return run.same_weights; });
    out += fmt::format("  {:<24}time over that of {} {}, {} weights, activity {}\n",
                       r.study.arms[arm.arm].arm.name, r.study.baseline,
                       pair_spread_text(values_of(arm, &FilledRun::time_ratio), 3), equal ? "equal" : "OTHER",
                       pair_spread_text(values_of(arm, &FilledRun::mean), 3));
  }
  return out;
}

std::string FillerStudy::figure(const StudyResult& r) const {
  std::vector<LoadPanel> panels;
  for (const LateFiller& one : r.as<FillerResult>().late)
    panels.push_back({one.delay_s
                          ? fmt::format("filling starts after {:g} ms: {} % of the band's energy are left",
                                        1e3 * *one.delay_s, ab::fixed(100 * one.band_share, 1))
                          : "no filler",
                      one.shown});
  return load_figure(r, "power of the site over its rated power, the last 20 s; modelled", panels);
}

std::shared_ptr<StudyKind> make_filler_kind() {
  return std::make_shared<FillerStudy>();
}

}  // namespace tenon::reproduce
