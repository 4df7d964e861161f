// Reading of map_results.hpp.
#include "reproduce/map_results.hpp"

#include "ab/run_record.hpp"
#include "base/process_facts.hpp"
#include "base/read_file.hpp"
#include "reproduce/map_runs.hpp"
#include "reproduce/results.hpp"

#include <tenon/error.hpp>
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
  MapResult out;
  r.complete = true;
  for (std::size_t arm = 0; arm < r.study.arms.size(); ++arm) {
    for (const std::int64_t workers : r.study.map->workers_at(r.size)) {
      MapPoint point;
      point.arm = arm, point.workers = workers;
      point.runs.resize(r.size.seeds.size());
      out.points.push_back(std::move(point));
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
    for (MapPoint& point : out.points) {
      if (point.arm != run.arm || point.workers != run.workers) continue;
      const auto seed = std::find(r.size.seeds.begin(), r.size.seeds.end(), run.seed) - r.size.seeds.begin();
      point.runs[static_cast<std::size_t>(seed)] = std::move(record);
      break;
    }
  }
  for (MapPoint& point : out.points) {
    summarise_point(point, alone(r, out.points, point));
    if (point.equal == point.compared) continue;
    r.complete = false;
    r.warnings.push_back(fmt::format("{} by {} workers: {} of {} samples differ from those of one worker",
                                     r.study.arms[point.arm].arm.name, point.workers,
                                     point.compared - point.equal, point.compared));
  }
  r.map = std::move(out);
}

}  // namespace tenon::reproduce
