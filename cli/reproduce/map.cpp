// The life of a study of simulations; see map.hpp.
#include "reproduce/map.hpp"

#include "ab/format.hpp"
#include "ab/run_record.hpp"
#include "ab/study.hpp"
#include "base/file_descriptor.hpp"
#include "base/json_writer.hpp"
#include "base/process_facts.hpp"
#include "record/build_info.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/sdk/simulation.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <stdexcept>

namespace tenon::reproduce {

// The table of the file.

namespace {

constexpr OptionSpec kMapOptions[] = {
    option::integers("workers", nullptr)
        .mandatory()
        .doc_text("numbers of worker processes, ascending, from 1, to which rates are compared"),
};

void check_workers(const std::vector<std::int64_t>& workers, const std::string& key, Problems& problems) {
  if (workers.empty() || workers.front() != 1)
    problems.say(key, "the first number must be 1: efficiency is a rate over that of one worker");
  for (std::size_t i = 1; i < workers.size(); ++i) {
    if (workers[i] <= workers[i - 1])
      problems.say(key, fmt::format("{} follows {}; values must ascend", workers[i], workers[i - 1]));
  }
}

/// "[a], [b] or [c]".
std::string either_of(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i];
  return out;
}

}  // namespace

const std::vector<std::int64_t>& SimulationMap::workers_at(const Size& size) const {
  return size.points.empty() ? workers : size.points;
}

std::vector<config::TableSpecs> SimulationMap::file_tables() const {
  return {{"map", kMapOptions}};
}

void SimulationMap::read(const Value& table) {
  const Resolution found =
      resolve_options({.table = table, .owner = "map", .specs = option_list(kMapOptions)});
  workers = integers_of(*found.options, "workers");
}

void SimulationMap::check(const StudyFile& study, Problems& problems) const {
  check_workers(workers, "map.workers", problems);
  if (const std::vector<std::string> others = problems.tables_before(*this); !others.empty())
    problems.say("map",
                 fmt::format("a study of simulations trains nothing, and has no {}", either_of(others)));
  for (const Size& size : study.sizes) {
    const auto key = [&](const char* name) { return fmt::format("size.{}.{}", size.name, name); };
    if (size.steps != 0) problems.say(key("steps"), "a simulation has tasks and no steps; say samples = N");
    if (size.samples < 1)
      problems.say(key("samples"), "how many tasks does every simulation have? e.g. samples = 100");
    if (!size.points.empty()) check_workers(size.points, key("points"), problems);
  }
  for (std::size_t i = 0; i < study.arms.size(); ++i) {
    const StudyArm& arm = study.arms[i];
    const StudyArm* baseline = study.arm(arm.baseline);
    if (baseline != nullptr && baseline->baseline != baseline->arm.name)
      problems.say(
          fmt::format("arm[{}].baseline", i),
          fmt::format("'{}' is itself compared with '{}'; name that one", arm.baseline, baseline->baseline));
    for (const std::string& set : arm.arm.set) {
      for (const char* ours : {"simulate.workers", "simulate.samples", "simulate.seed", "simulate.folder"}) {
        if (set.starts_with(std::string(ours) + "="))
          problems.say(fmt::format("arm[{}].set", i), fmt::format("{} is the study's to set", ours));
      }
    }
  }
}

// Runs.

namespace {

namespace fs = std::filesystem;

std::vector<std::string> simulation_sets(const ab::Arm& arm, const Size& size, const MapRun& run) {
  std::vector<std::string> sets = arm.set;
  sets.push_back(fmt::format("simulate.samples={}", size.samples));
  sets.push_back(fmt::format("simulate.seed={}", run.seed));
  sets.push_back(fmt::format("simulate.workers={}", run.workers));
  return sets;
}

/// The request that a kept run must have. Its first line says where it was made.
std::string wanted_text(const std::string& arm_file, const std::vector<std::string>& sets) {
  return to_toml(Config::load(arm_file, sets).root(), false);
}

std::string made_by() {
  const BuildInfo build = build_info();
  return fmt::format("# {} ({}{}) on {}, {} cores, {}\n", build.version, build.git,
                     build.git_dirty ? ", changed" : "", cpu_model(), usable_cores(), utc_now());
}

/// The text after the first line.
std::string asked_for(const fs::path& attempt) {
  const std::string text = base::read_file(attempt / "wanted.toml").value_or("");
  return text.substr(std::min(text.find('\n') + 1, text.size()));
}

ab::Job job_of(const MapRun& run, std::size_t index, const std::string& arm_file,
               const std::vector<std::string>& sets, const std::string& program) {
  ab::Job job;
  job.arm = index;
  job.seed = run.seed;
  job.parent = run.folder;
  job.log = (fs::path(run.folder) / "output.log").string();
  job.command = {program, "simulate", arm_file, "--quiet", "--json"};
  for (const std::string& set : sets) job.command.insert(job.command.end(), {"--set", set});
  job.command.insert(job.command.end(),
                     {"--set", fmt::format("simulate.folder=\"{}/simulation\"", run.folder)});
  return job;
}

ab::Experiment by_workers(const StudyFile& study, const Size& size) {
  const ab::Experiment given = experiment_of(study, size);
  ab::Experiment out = given;
  out.arms.clear();
  for (const ab::Arm& arm : given.arms) {
    for (const std::int64_t workers : study.as<SimulationMap>().workers_at(size)) {
      out.arms.push_back(arm);
      out.arms.back().name = fmt::format("{}.{}", arm.name, workers);
    }
  }
  return out;
}

}  // namespace

MapPlan plan_map(const StudyFile& study, const Size& size, const ab::RunnerOptions& options,
                 const SimulationCheck& check) {
  MapPlan plan;
  plan.experiment = by_workers(study, size);
  ab::write_arm_files(plan.experiment, options);
  const auto files = make_posix_files();
  const std::vector<std::int64_t>& workers = study.as<SimulationMap>().workers_at(size);
  const std::size_t points = plan.experiment.arms.size();
  for (std::size_t s = 0; s < size.seeds.size(); ++s) {
    for (std::size_t i = 0; i < points; ++i) {
      // Alternating order, so that drift of the machine affects all alike.
      const std::size_t at = s % 2 == 0 ? i : points - 1 - i;
      const ab::Arm& arm = plan.experiment.arms[at];
      MapRun run;
      run.arm = at / workers.size();
      run.workers = workers[at % workers.size()];
      run.seed = size.seeds[s];
      const std::string arm_file = ab::arm_file_path(options.folder, arm);
      const std::vector<std::string> sets = simulation_sets(arm, size, run);
      if (s == 0) {
        try {
          check(arm_file, sets);
        } catch (const Error& error) {
          throw Error(error.kind(),
                      fmt::format("tenon reproduce: {} at size {} cannot run here, and nothing was started. "
                                  "Arm '{}': {}",
                                  study.name, size.name, study.arms[run.arm].arm.name, error.what()));
        }
      }
      const std::string parent = ab::run_parent(options.folder, arm.name, run.seed);
      const std::string wanted = wanted_text(arm_file, sets);
      const int newest = ab::newest_attempt(parent);
      run.folder = (fs::path(parent) / std::to_string(newest)).string();
      const bool same = newest > 0 && asked_for(run.folder) == wanted;
      run.kept = same && read_map_record(run.folder).status == "completed";
      if (!run.kept) {
        if (newest > 0)
          run.reason = same ? fmt::format("attempt {} did not end", newest)
                            : fmt::format("attempt {} is of another configuration", newest);
        run.folder = (fs::path(parent) / std::to_string(newest + 1)).string();
        fs::create_directories(run.folder);
        files->write_text_atomically(run.folder + "/wanted.toml", made_by() + wanted);
        plan.jobs.push_back(job_of(run, at, arm_file, sets, options.program));
      }
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

Outcome SimulationMap::run(const StudyFile& study, const Size& size, const Request& request,
                           ab::RunnerOptions runner) const {
  runner.resolve = {};  // arms are simulations, whose paths are those of plugins
  MapPlan plan = plan_map(study, size, runner, request.check_simulation);
  Outcome out;
  out.started = plan.jobs.size();
  out.kept = plan.runs.size() - plan.jobs.size();
  if (request.progress) {
    for (const MapRun& run : plan.runs) {
      if (!run.reason.empty())
        request.progress(fmt::format("reproduce: {} by {} workers, seed {} starts again: {}",
                                     study.arms[run.arm].arm.name, run.workers, run.seed, run.reason),
                         true);
    }
    request.progress(fmt::format("reproduce: {} runs kept, {} to start", out.kept, out.started), true);
  }
  if (!plan.jobs.empty()) out.runs = ab::run_planned(plan.experiment, std::move(plan.jobs), runner);
  out.result.study = study;
  out.result.size = size;
  read_map_results(out.result, plan.runs);
  return out;
}

// Numbers.

namespace {

namespace fs = std::filesystem;

/// The object that --json prints after earlier text.
std::string json_behind_words(const std::string& log) {
  if (log.starts_with("{")) return log;
  const std::size_t at = log.find("\n{");
  return at == std::string::npos ? "" : log.substr(at + 1);
}

MapRecord no_record(const std::string& reason) {
  MapRecord record;
  record.status = "missing";
  record.reason = reason;
  return record;
}

MapRecord parsed(const std::string& json, const std::string& where) {
  const std::map<std::string, std::string> flat = ab::flatten_json(json, where);
  const auto number = [&](const char* key) { return std::stod(flat.at(key)); };
  MapRecord record;
  record.status = flat.at("status");
  record.workers = std::stoll(flat.at("workers"));
  record.finished = number("finished");
  record.failed = number("failed");
  record.repeated = number("repeated");
  record.lost_workers = number("lost_workers");
  record.wall_s = number("wall_s");
  record.busy_s = number("busy_s");
  return record;
}

std::optional<RateRange> range_over(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  RateRange range{values.size(), 0, values.front(), values.front()};
  for (const double value : values) {
    range.mean += value / static_cast<double>(values.size());
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  return range;
}

/// The baseline of `point` by one worker.
const MapPoint& alone(const StudyResult& r, const std::vector<MapPoint>& points, const MapPoint& point) {
  for (const MapPoint& other : points) {
    if (other.workers == 1 && r.study.arms[other.arm].arm.name == r.study.arms[point.arm].baseline)
      return other;
  }
  throw std::logic_error("a study of simulations without its baseline by one worker");
}

void compare_samples(MapPoint& point, const MapRecord& record, const MapRecord& reference) {
  for (const auto& [task, digest] : record.digests) {
    const auto other = reference.digests.find(task);
    if (other == reference.digests.end()) continue;
    ++point.compared;
    point.equal += other->second == digest ? 1 : 0;
  }
}

void summarise_point(MapPoint& point, const MapPoint& reference) {
  std::vector<double> rates, efficiencies;
  double busy = 0, time = 0, attempts = 0, n = 0;
  for (std::size_t s = 0; s < point.runs.size(); ++s) {
    const std::optional<MapRecord>& run = point.runs[s];
    if (!run || !run->usable()) continue;
    ++n;
    rates.push_back(run->rate());
    busy += run->busy_s;
    time += run->wall_s * static_cast<double>(point.workers);
    attempts += run->finished + run->failed + run->repeated;
    point.finished += run->finished;
    point.repeated += run->repeated;
    point.lost_workers += run->lost_workers;
    point.holes += run->failed;
    const std::optional<MapRecord>& one = reference.runs[s];
    if (!one || !one->usable()) continue;
    efficiencies.push_back(run->rate() / (static_cast<double>(point.workers) * one->rate()));
    compare_samples(point, *run, *one);
  }
  for (double* sum : {&point.finished, &point.repeated, &point.lost_workers, &point.holes})
    *sum /= std::max(n, 1.0);
  point.rate = range_over(rates);
  point.efficiency = range_over(efficiencies);
  if (time > 0) point.busy = busy / time;
  if (attempts > 0) point.attempt_s = busy / attempts;
}

/// "# 0.1.0 (abc) on Some CPU, 2 cores, 2026-01-01T00:00:00.000Z" of wanted.toml, which is written before the
/// first run; the time at which a run ended is that of its log.
void add_provenance(Provenance& out, const std::string& folder) {
  std::ifstream in(fs::path(folder) / "wanted.toml");
  std::string line;
  std::getline(in, line);
  const std::size_t on = line.find(" on "), time = line.rfind(", ");
  if (!line.starts_with("# ") || on == std::string::npos || time == std::string::npos || time < on) return;
  const auto add = [](std::vector<std::string>& list, const std::string& text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  };
  add(out.program, line.substr(2, on - 2));
  add(out.machines, line.substr(on + 4, time - on - 4));
  const std::string begun = line.substr(time + 2);
  if (out.begun.empty() || begun < out.begun) out.begun = begun;
  std::error_code missing;
  const auto ended = fs::last_write_time(fs::path(folder) / "output.log", missing);
  if (!missing) out.ended = std::max(out.ended, utc_text(std::chrono::file_clock::to_sys(ended)));
}

}  // namespace

MapRecord read_map_record(const std::string& folder) {
  const std::string log = (fs::path(folder) / "output.log").string();
  const std::optional<std::string> text = base::read_file(log);
  if (!text) return no_record("not run yet");
  const std::string json = json_behind_words(*text);
  if (json.empty()) return no_record("it did not come to its end");
  try {
    MapRecord record = parsed(json, log);
    const auto files = make_posix_files();
    record.digests = read_simulation(*files, (fs::path(folder) / "simulation").string()).finished;
    return record;
  } catch (const std::out_of_range&) {
    return no_record("a figure is missing in " + log);
  } catch (const std::exception& error) {
    return no_record(error.what());
  }
}

void read_map_results(StudyResult& r, const std::vector<MapRun>& runs) {
  auto out = std::make_shared<MapResult>();
  r.complete = true;
  for (std::size_t arm = 0; arm < r.study.arms.size(); ++arm) {
    for (const std::int64_t workers : r.study.as<SimulationMap>().workers_at(r.size)) {
      MapPoint point;
      point.arm = arm, point.workers = workers;
      point.runs.resize(r.size.seeds.size());
      out->points.push_back(std::move(point));
    }
  }
  for (const MapRun& run : runs) {
    MapRecord record = read_map_record(run.folder);
    if (!record.usable()) {
      r.complete = false;
      r.warnings.push_back(fmt::format("{} by {} workers, seed {}: {}{}", r.study.arms[run.arm].arm.name,
                                       run.workers, run.seed, record.status,
                                       record.reason.empty() ? "" : ", " + record.reason));
    }
    r.provenance.wall_s += record.wall_s;
    add_provenance(r.provenance, run.folder);
    for (MapPoint& point : out->points) {
      if (point.arm != run.arm || point.workers != run.workers) continue;
      const auto seed = std::find(r.size.seeds.begin(), r.size.seeds.end(), run.seed) - r.size.seeds.begin();
      point.runs[seed] = std::move(record);
      break;
    }
  }
  for (MapPoint& point : out->points) {
    summarise_point(point, alone(r, out->points, point));
    if (point.equal == point.compared) continue;
    r.complete = false;
    r.warnings.push_back(fmt::format("{} by {} workers: {} of {} samples differ from those of one worker",
                                     r.study.arms[point.arm].arm.name, point.workers,
                                     point.compared - point.equal, point.compared));
  }
  r.numbers = std::move(out);
}

// Tables.

namespace {

constexpr const char* kNothing = "–";

std::string rate_digits(double rate) {
  return ab::fixed(rate, rate >= 100 ? 0 : rate >= 10 ? 1 : 2);
}

/// "12.3 (12.1 to 12.6)"; one seed has no range.
std::string with_range(const std::optional<RateRange>& range, const auto& digits) {
  if (!range) return kNothing;
  if (range->n < 2) return digits(range->mean);
  return fmt::format("{} ({} to {})", digits(range->mean), digits(range->low), digits(range->high));
}

std::string hundredths(double share) {
  return ab::fixed(100 * share, 1);
}

std::string pivot_by_workers(const StudyResult& r, const std::string& what, const auto& cell_of) {
  std::vector<std::string> names{what};
  for (const std::int64_t workers : r.study.as<SimulationMap>().workers_at(r.size))
    names.push_back(fmt::format("{} worker{}", workers, workers == 1 ? "" : "s"));
  std::string out = head(names);
  for (std::size_t arm = 0; arm < r.study.arms.size(); ++arm) {
    std::vector<std::string> cells{r.study.arms[arm].title};
    for (const MapPoint& point : r.as<MapResult>().points)
      if (point.arm == arm) cells.push_back(cell_of(point));
    out += row(cells);
  }
  return out;
}

}  // namespace

std::string SimulationMap::tables(const StudyResult& r) const {
  std::string out = "### Tasks per second, measured\n\n";
  out += pivot_by_workers(r, "finished tasks/s",
                          [](const MapPoint& point) { return with_range(point.rate, rate_digits); });
  out += "\n### Efficiency, measured\n\n";
  out += pivot_by_workers(r, "of workers x one worker's rate, %",
                          [](const MapPoint& point) { return with_range(point.efficiency, hundredths); });
  return out +
         fmt::format(
             "\nMean{} of {} tasks each. Efficiency is the rate over workers x the rate of the row's "
             "baseline "
             "by one worker with the same seed; the baseline of a row with injected failures is the same "
             "simulation without them, so attempts that were lost count against it. Time is from the start "
             "of "
             "the first worker process to the last result on the disk.\n",
             r.size.seeds.size() > 1 ? fmt::format(" of {} seeds (smallest to largest)", r.size.seeds.size())
                                     : " of one seed",
             r.size.samples);
}

std::string SimulationMap::every_run(const StudyResult& r) const {
  std::string out =
      "\n## Every point\n\n" +
      head({"arm", "workers", "baseline", "tasks finished", "attempts repeated", "workers lost", "holes",
            "s of a worker per attempt", "workers busy, %", "samples with the bits of one worker"});
  for (const MapPoint& point : r.as<MapResult>().points) {
    const StudyArm& arm = r.study.arms[point.arm];
    out += row({arm.arm.name, std::to_string(point.workers), arm.baseline, ab::fixed(point.finished, 1),
                ab::fixed(point.repeated, 1), ab::fixed(point.lost_workers, 1), ab::fixed(point.holes, 1),
                point.attempt_s ? ab::fixed(*point.attempt_s, 4) : kNothing,
                point.busy ? hundredths(*point.busy) : kNothing,
                fmt::format("{} of {}", point.equal, point.compared)});
  }
  return out +
         "\nCounts are means over seeds. Busy = from an order to its answer, lost attempts included. Samples "
         "are compared by the digests of their manifests (xxh3-128 over all elements), with the same seed.\n";
}

void SimulationMap::json(JsonWriter& json, const StudyResult& r) const {
  const auto range = [&](const char* key, const std::optional<RateRange>& value) {
    json.begin_object(key);
    json.member("seeds", static_cast<std::int64_t>(value ? value->n : 0));
    json.member("mean", value ? value->mean : JsonWriter::kNull);
    json.member("low", value ? value->low : JsonWriter::kNull);
    json.member("high", value ? value->high : JsonWriter::kNull);
    json.end_object();
  };
  json.objects("map", r.as<MapResult>().points, [&](const MapPoint& point) {
    const StudyArm& arm = r.study.arms[point.arm];
    json.member("arm", arm.arm.name);
    json.member("title", arm.title);
    json.member("baseline", arm.baseline);
    json.member("workers", point.workers);
    range("tasks_per_s_measured", point.rate);
    range("efficiency_measured", point.efficiency);
    json.member("finished", point.finished);
    json.member("repeated", point.repeated);
    json.member("lost_workers", point.lost_workers);
    json.member("holes", point.holes);
    json.member("attempt_s", point.attempt_s.value_or(JsonWriter::kNull));
    json.member("busy_share", point.busy.value_or(JsonWriter::kNull));
    json.member("samples_equal", static_cast<std::int64_t>(point.equal));
    json.member("samples_compared", static_cast<std::int64_t>(point.compared));
  });
  paper_values_json(json, r);
}

std::string SimulationMap::lines(const StudyResult& r) const {
  std::string out;
  for (std::size_t arm = 0; arm < r.study.arms.size(); ++arm) {
    out += fmt::format("  {:<24}", r.study.arms[arm].arm.name);
    for (const MapPoint& point : r.as<MapResult>().points) {
      if (point.arm != arm) continue;
      out += fmt::format(" {}: {} tasks/s, {} %;", point.workers,
                         point.rate ? rate_digits(point.rate->mean) : kNothing,
                         point.efficiency ? hundredths(point.efficiency->mean) : kNothing);
    }
    out += "\n";
  }
  return out + "  per cent of workers x one worker's rate without failures\n";
}

std::string SimulationMap::size_text(const StudyFile& study, const Size& size) const {
  const std::size_t numbers = workers_at(size).size();
  return fmt::format("{} arms x {} number{} of workers x {} seed{} x {} tasks", study.arms.size(), numbers,
                     numbers == 1 ? "" : "s", size.seeds.size(), size.seeds.size() == 1 ? "" : "s",
                     size.samples);
}

/// Tasks per second and efficiency against workers.
std::string SimulationMap::figure(const StudyResult& r) const {
  LinePanel rates{.title = "tasks/s, measured", .lines = {}, .from_zero = true, .slope = {}},
      shares{.title = "efficiency, %, measured", .lines = {}, .from_zero = true, .slope = {}};
  LineFigure figure{.x_title = "worker processes",
                    .names = {},
                    .under_title = fmt::format("{} tasks a simulation", r.size.samples),
                    .panels = {}};
  for (std::size_t arm = 0; arm < r.study.arms.size(); ++arm) {
    figure.names.push_back(r.study.arms[arm].title);
    std::vector<ab::Point>&rate = rates.lines.emplace_back(), &share = shares.lines.emplace_back();
    for (const MapPoint& point : r.as<MapResult>().points) {
      if (point.arm != arm) continue;
      const auto workers = static_cast<double>(point.workers);
      if (point.rate) rate.push_back({workers, point.rate->mean});
      if (point.efficiency) share.push_back({workers, 100 * point.efficiency->mean});
    }
  }
  figure.panels = {std::move(rates), std::move(shares)};
  return line_figure(r, figure);
}

std::shared_ptr<StudyKind> make_map_kind() {
  return std::make_shared<SimulationMap>();
}

}  // namespace tenon::reproduce
