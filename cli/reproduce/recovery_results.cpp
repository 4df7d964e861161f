// Reading recovery.jsonl, drawing schedules, differences of arms.
#include "reproduce/recovery_results.hpp"

#include "clock/emulated_failures.hpp"
#include "reproduce/results.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>

namespace tenon::reproduce {
namespace {

using nlohmann::json;

constexpr double kHour = 3600;

double number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

ChargedHours charged_of(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_object()) return {};
  return {number(*found, "save_hours"), number(*found, "load_hours"), number(*found, "restart_hours"),
          number(*found, "repeat_hours")};
}

/// Returns whether the save was charged.
bool add_save(RecoveryRun& run, std::map<std::int64_t, double>& shares, const json& line) {
  if (line.value("status", "") != "committed") return false;
  const ChargedHours charged = charged_of(line, "charged");
  // A save before the first slot or after the last is free, and not part of the rhythm.
  if (charged.save == 0) return false;
  run.charged.save += charged.save;
  run.written += number(line, "bytes");
  run.written_share += number(line, "share_of_complete");
  run.save_s += number(line, "copy_s") + number(line, "write_s") + number(line, "commit_s");
  shares.insert_or_assign(static_cast<std::int64_t>(number(line, "slot")), number(line, "share_of_complete"));
  return true;
}

void add_failure(RecoveryRun& run, const json& line) {
  const ChargedHours charged = charged_of(line, "charged");
  run.charged.load += charged.load;
  run.charged.restart += charged.restart;
  run.charged.repeat += charged.repeat;
  run.lost_accesses += number(line, "lost_access_share");
  ++run.failures;
}

double setting(const ab::RunRecord& record, const std::string& key) {
  const auto found = record.config.find(key);
  return found == record.config.end() ? 0.0 : std::strtod(found->second.c_str(), nullptr);
}

/// The law of an arm's failures as its runs were configured; empty where none are drawn.
std::optional<config::FailureLaw> law_of(const ab::RunRecord& record) {
  const auto kind = record.config.find("emulate.law");
  if (kind == record.config.end() || kind->second.find("none") != std::string::npos) return std::nullopt;
  config::FailureLaw law;
  law.hours = setting(record, "emulate.hours");
  law.mean_hours = setting(record, "emulate.mtbf_hours");
  if (kind->second.find("gamma") != std::string::npos) law.shape = setting(record, "emulate.shape");
  law.shards = static_cast<int>(setting(record, "emulate.shards"));
  law.lost = static_cast<int>(setting(record, "emulate.lost"));
  law.at_least = static_cast<int>(setting(record, "emulate.at_least"));
  return law;
}

struct Rhythm {
  std::vector<ChargedSave> saves;  ///< shares are means over the runs
  bool partial = false;
  double interval = 0, save = 0, load = 0, restart = 0;
};

Rhythm rhythm_of(const std::vector<RecoveryRun>& runs, const ab::RunRecord& record) {
  Rhythm rhythm;
  rhythm.partial = runs.front().partial;
  rhythm.interval = runs.front().interval_hours;
  rhythm.save = setting(record, "emulate.save_minutes") / 60;
  rhythm.load = setting(record, "emulate.load_minutes") / 60;
  rhythm.restart = setting(record, "emulate.restart_minutes") / 60;
  rhythm.saves = runs.front().saves;
  for (std::size_t s = 0; s < rhythm.saves.size(); ++s) {
    double sum = 0;
    int counted = 0;
    for (const RecoveryRun& run : runs) {
      if (s >= run.saves.size()) continue;
      sum += run.saves[s].share;
      ++counted;
    }
    rhythm.saves[s].share = sum / counted;
  }
  return rhythm;
}

/// Mean portion by equation: exact for a Poisson process, divided by the chance of a failure where a schedule
/// without one is drawn again.
std::optional<double> law_pls(const config::FailureLaw& law, double interval) {
  if (law.shape != 1 || law.at_least > 1) return std::nullopt;
  const double whole = std::floor(law.hours / interval), rest = law.hours - whole * interval;
  const double mean =
      law.lost * (whole * interval * interval + rest * rest) / 2 / (law.shards * law.hours * law.mean_hours);
  return law.at_least == 0 ? mean : mean / (1 - std::exp(-law.hours / law.mean_hours));
}

ScheduleDraws draw(config::FailureLaw law, const Rhythm& mine, const Rhythm& full, std::int64_t draws,
                   double alpha) {
  std::vector<double> overheads, ratios, portions;
  double all_full = 0, all_mine = 0, failures = 0;
  for (std::int64_t i = 0; i < draws; ++i) {
    law.seed = static_cast<std::uint64_t>(i) + 1;
    const std::vector<config::EmulatedFailure> schedule = train::draw_failures(law);
    const auto cost = [&](const Rhythm& rhythm) {
      return charge_schedule(schedule, rhythm.saves, rhythm.partial, rhythm.save, rhythm.load, rhythm.restart)
          .total();
    };
    const double theirs = cost(full), own = cost(mine);
    overheads.push_back(100 * own / law.hours);
    ratios.push_back(theirs / own);
    if (mine.partial) portions.push_back(schedule_pls(schedule, mine.interval, law.hours, law.shards));
    all_full += theirs;
    all_mine += own;
    failures += static_cast<double>(schedule.size());
  }
  ScheduleDraws out;
  out.draws = draws;
  out.failures = failures / static_cast<double>(draws);
  out.overhead_percent = ab::mean_with_interval(overheads, alpha);
  out.ratio = ab::mean_with_interval(ratios, alpha);
  out.ratio_of_means = all_full / all_mine;
  if (!mine.partial) return out;
  out.pls = ab::mean_with_interval(portions, alpha);
  out.law = law_pls(law, mine.interval);
  return out;
}

void summarise(RecoveryArm& arm, const RecoveryArm& full, double alpha) {
  std::vector<double> overheads, ratios, portions, lost;
  const auto count = static_cast<double>(arm.runs.size());
  for (const RecoveryRun& run : arm.runs) {
    arm.charged.save += run.charged.save / count;
    arm.charged.load += run.charged.load / count;
    arm.charged.restart += run.charged.restart / count;
    arm.charged.repeat += run.charged.repeat / count;
    arm.saves += static_cast<double>(run.saves.size()) / count;
    arm.failures += static_cast<double>(run.failures) / count;
    arm.written += run.written / count;
    arm.save_s += run.save_s / count;
    arm.written_share += run.written_share / count;
    overheads.push_back(run.overhead_percent());
    portions.push_back(run.pls);
    lost.push_back(100 * run.lost_accesses);
    if (run.always_whole > 0) arm.always_whole = run.always_whole;
    for (const RecoveryRun& other : full.runs) {
      if (other.seed == run.seed && run.charged.total() > 0)
        ratios.push_back(other.charged.total() / run.charged.total());
    }
  }
  arm.overhead_percent = estimate(overheads, alpha);
  arm.ratio = estimate(ratios, alpha);
  arm.pls = estimate(portions, alpha);
  arm.lost_accesses = estimate(lost, alpha);
}

const ab::RunRecord* first_record(const ArmResult& arm) {
  for (const RunResult& run : arm.runs) {
    if (run.record && run.value) return &*run.record;
  }
  return nullptr;
}

std::size_t index_of(const StudyResult& result, const std::string& name) {
  std::size_t i = 0;
  while (result.study.arms[i].arm.name != name) ++i;
  return i;
}

RecoveryFit fit(const StudyResult& result, const std::vector<RecoveryArm>& arms, const RecoveryLine& line) {
  RecoveryFit out{line.title, {}};
  std::vector<double> all_x, all_y, x, y;
  for (const std::string& name : line.arms) {
    const std::size_t a = index_of(result, name);
    const std::size_t baseline = index_of(result, result.study.arms[a].baseline);
    std::vector<double> differences;
    for (const RunResult& run : result.arms[a].runs) {
      for (const RunResult& other : result.arms[baseline].runs) {
        if (run.seed != other.seed || !run.value || !other.value) continue;
        differences.push_back(*run.value - *other.value);
        for (const RecoveryRun& lost : arms[a].runs) {
          if (lost.seed != run.seed) continue;
          all_x.push_back(lost.pls);
          all_y.push_back(differences.back());
        }
      }
    }
    if (differences.empty() || !arms[a].pls) continue;
    out.points.push_back({arms[a].pls->mean, ab::mean_with_interval(differences, result.study.alpha)});
  }
  std::sort(out.points.begin(), out.points.end(),
            [](const RecoveryFit::Point& a, const RecoveryFit::Point& b) { return a.pls < b.pls; });
  for (const RecoveryFit::Point& point : out.points) {
    x.push_back(point.pls);
    y.push_back(point.difference.mean);
  }
  const StraightLine found = straight_line(x, y);
  out.slope = found.slope;
  out.intercept = found.intercept;
  out.correlation = found.correlation;
  out.correlation_of_runs = straight_line(all_x, all_y).correlation;
  return out;
}

RecoveryDifference difference(const StudyResult& result, const RecoveryPair& pair) {
  std::vector<double> values;
  for (const RunResult& run : result.arms[index_of(result, pair.arm)].runs) {
    for (const RunResult& other : result.arms[index_of(result, pair.minus)].runs) {
      if (run.seed == other.seed && run.value && other.value) values.push_back(*run.value - *other.value);
    }
  }
  return {pair.title, estimate(values, result.study.alpha)};
}

}  // namespace

ChargedHours charge_schedule(const std::vector<config::EmulatedFailure>& failures,
                             const std::vector<ChargedSave>& saves, bool partial, double save_hours,
                             double load_hours, double restart_hours) {
  ChargedHours charged;
  for (const ChargedSave& save : saves) charged.save += save_hours * save.share;
  for (const config::EmulatedFailure& failure : failures) {
    charged.load += load_hours;
    charged.restart += restart_hours;
    if (partial) continue;
    double from = 0;
    for (const ChargedSave& save : saves) {
      if (save.hour <= failure.hour) from = save.hour;
    }
    charged.repeat += failure.hour - from;
  }
  return charged;
}

StraightLine straight_line(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) mean_x += x[i] / n, mean_y += y[i] / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  if (xx == 0) return {0, mean_y, 0};
  const double slope = xy / xx;
  return {slope, mean_y - slope * mean_x, yy == 0 ? 0 : xy / std::sqrt(xx * yy)};
}

double schedule_pls(const std::vector<config::EmulatedFailure>& failures, double interval, double hours,
                    int shards) {
  double lost = 0;
  for (const config::EmulatedFailure& failure : failures) {
    const double saved = std::floor(failure.hour / interval) * interval;
    lost += static_cast<double>(failure.shards.size()) * (failure.hour - saved);
  }
  return lost / (hours * shards);
}

RecoveryRun read_recovery_run(const std::string& folder) {
  const std::string path = folder + "/recovery.jsonl";
  std::ifstream in(path);
  if (!in) fail_run(path + ": cannot be read; the run has no [recovery] or was made by an older program");
  RecoveryRun run;
  std::map<std::int64_t, double> shares;  // by slot: after a roll-back a slot may be saved again
  std::int64_t slots = 0, number_of_line = 0, charged_saves = 0;
  for (std::string text; std::getline(in, text);) {
    ++number_of_line;
    const json line = json::parse(text, nullptr, false);
    if (!line.is_object()) {
      if (in.peek() == EOF) break;  // torn by a kill
      fail_run(fmt::format("{}:{}: expected an event as a JSON object, found '{}'", path, number_of_line,
                           text.substr(0, 80)));
    }
    const std::string event = line.value("event", "");
    if (event == "save") charged_saves += add_save(run, shares, line) ? 1 : 0;
    if (event == "failure") add_failure(run, line);
    const auto account = line.find("account");
    if (account != line.end()) {
      run.pls = number(*account, "pls");
      run.partial = number(*account, "partial_recovery") == 1;
      run.interval_hours = number(*account, "save_interval_s") / kHour;
      run.always_whole = number(*account, "always_whole_share");
    }
    if (event != "end") continue;
    slots = static_cast<std::int64_t>(number(line, "slot"));
    run.productive_hours = number(line, "productive_hours");
    run.access_shares.clear();
    for (const json& share : line.value("access_shares", json::array()))
      run.access_shares.push_back(share.is_number() ? share.get<double>() : 0);
  }
  if (charged_saves > 0) run.save_s /= static_cast<double>(charged_saves);
  for (const auto& [slot, share] : shares) {
    if (slots > 0)
      run.saves.push_back(
          {run.productive_hours * static_cast<double>(slot) / static_cast<double>(slots), share});
  }
  return run;
}

void read_recovery_results(StudyResult& result) {
  const RecoveryStudy& study = *result.study.recovery;
  RecoveryResult out;
  std::size_t full = result.arms.size();
  for (std::size_t a = 0; a < result.arms.size(); ++a) {
    if (result.study.arms[a].arm.name == study.full) full = a;
    RecoveryArm& arm = out.arms.emplace_back();
    for (const RunResult& run : result.arms[a].runs) {
      if (!run.record || !run.value) continue;
      try {
        arm.runs.push_back(read_recovery_run(run.record->folder));
        arm.runs.back().seed = run.seed;
        if (out.access_shares.empty()) out.access_shares = arm.runs.back().access_shares;
      } catch (const Error& error) {
        result.warnings.emplace_back(error.what());
        result.complete = false;
      }
    }
  }
  const RecoveryArm nobody;
  const bool compared = full < result.arms.size() && !out.arms[full].runs.empty();
  const RecoveryArm& against = compared ? out.arms[full] : nobody;
  const ab::RunRecord* full_record = compared ? first_record(result.arms[full]) : nullptr;
  for (std::size_t a = 0; a < result.arms.size(); ++a) {
    RecoveryArm& arm = out.arms[a];
    if (arm.runs.empty()) continue;
    summarise(arm, against, result.study.alpha);
    const ab::RunRecord* record = first_record(result.arms[a]);
    const std::optional<config::FailureLaw> law = law_of(*record);
    // An arm that saves nothing and never fails has no overhead to divide by.
    if (!law || arm.charged.total() == 0 || full_record == nullptr) continue;
    arm.drawn = draw(*law, rhythm_of(arm.runs, *record), rhythm_of(against.runs, *full_record), study.draws,
                     result.study.alpha);
  }
  for (const RecoveryPair& pair : study.pairs) out.pairs.push_back(difference(result, pair));
  for (const RecoveryLine& line : study.lines) out.fits.push_back(fit(result, out.arms, line));
  result.recovery = std::move(out);
  result.provenance.simulated.emplace_back(
      "hours and overheads (virtual clock of [emulate]; prices of its table, sums of executed events)");
}

}  // namespace tenon::reproduce
