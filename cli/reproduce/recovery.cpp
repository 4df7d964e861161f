// The life of a study of recovery; see recovery.hpp.
#include "reproduce/recovery.hpp"

#include "ab/format.hpp"
#include "ab/svg.hpp"
#include "base/json_writer.hpp"
#include "clock/emulated_failures.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>

namespace tenon::reproduce {

// The tables of the file.

namespace {

constexpr OptionSpec kRecoveryOptions[] = {
    option::integer("draws", "1000")
        .between(10, 1000000)
        .doc_text("schedules of failures per arm that are charged without training"),
    option::text("full", "\"\"").doc_text("arm whose overhead is divided by that of the others"),
};

constexpr OptionSpec kRecoveryPairOptions[] = {
    option::text("arm", nullptr).mandatory().doc_text("whose metric is taken"),
    option::text("minus", nullptr).mandatory().doc_text("the arm that is subtracted, seed by seed"),
    option::text("title", "\"\"").doc_text("for the table; the names if absent"),
};

constexpr OptionSpec kRecoveryLineOptions[] = {
    option::text("title", nullptr).mandatory().doc_text("for the table and the figure"),
    option::texts("arms", nullptr).mandatory().doc_text("whose losses stand against their lost samples"),
};

}  // namespace

std::vector<config::TableSpecs> Recovery::file_tables() const {
  return {{"recovery", kRecoveryOptions},
          {"recovery.pair", kRecoveryPairOptions, true},
          {"recovery.line", kRecoveryLineOptions, true}};
}

void Recovery::read(const Value& table) {
  OptionRequest request{.table = table, .owner = "recovery", .specs = option_list(kRecoveryOptions)};
  request.other_keys = {"pair", "line"};
  const Resolution found = resolve_options(request);
  draws = found.options->integer("draws");
  full = std::string(found.options->text("full"));
  const Value* pair_list = table.find("pair");
  for (std::size_t i = 0; pair_list != nullptr && i < pair_list->array().size(); ++i) {
    const Resolution one = resolve_options({.table = pair_list->array()[i],
                                            .owner = fmt::format("recovery.pair[{}]", i),
                                            .specs = option_list(kRecoveryPairOptions)});
    RecoveryPair pair{std::string(one.options->text("arm")), std::string(one.options->text("minus")),
                      std::string(one.options->text("title"))};
    if (pair.title.empty()) pair.title = fmt::format("{} − {}", pair.arm, pair.minus);
    pairs.push_back(std::move(pair));
  }
  const Value* line_list = table.find("line");
  for (std::size_t i = 0; line_list != nullptr && i < line_list->array().size(); ++i) {
    const Resolution one = resolve_options({.table = line_list->array()[i],
                                            .owner = fmt::format("recovery.line[{}]", i),
                                            .specs = option_list(kRecoveryLineOptions)});
    fits.push_back({std::string(one.options->text("title")), texts_of(*one.options, "arms")});
  }
}

void Recovery::check(const StudyFile& study, Problems& problems) const {
  if (!full.empty()) problems.arm_named("recovery.full", full);
  for (std::size_t i = 0; i < fits.size(); ++i) {
    const std::vector<std::string>& arms = fits[i].arms;
    for (std::size_t a = 0; a < arms.size(); ++a)
      problems.arm_named(fmt::format("recovery.line[{}].arms[{}]", i, a), arms[a]);
    if (arms.size() < 3)
      problems.say(fmt::format("recovery.line[{}].arms", i),
                   "a line through fewer than three arms says nothing");
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    problems.arm_named(fmt::format("recovery.pair[{}].arm", i), pairs[i].arm);
    problems.arm_named(fmt::format("recovery.pair[{}].minus", i), pairs[i].minus);
    if (pairs[i].arm == pairs[i].minus)
      problems.say(fmt::format("recovery.pair[{}].minus", i), "an arm minus itself is 0; name another");
  }
  problems.alone(*this);
}

// Numbers: recovery.jsonl, schedules, differences of arms.

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
  const Recovery& study = result.study.as<Recovery>();
  auto numbers = std::make_shared<RecoveryResult>();
  RecoveryResult& out = *numbers;
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
  for (const RecoveryLine& line : study.fits) out.fits.push_back(fit(result, out.arms, line));
  result.numbers = std::move(numbers);
  result.provenance.simulated.emplace_back(
      "hours and overheads (virtual clock of [emulate]; prices of its table, sums of executed events)");
}

void Recovery::read_numbers(StudyResult& result, const Plan&, const std::string&) const {
  read_recovery_results(result);
}

// Tables.

namespace {

/// "8.21 (7.90 to 8.52)"; one run has no interval.
std::string interval_text(const std::optional<ab::MeanEstimate>& value, int decimals, bool sign = false) {
  if (!value) return "–";
  const auto text = [&](double number) {
    return sign ? ab::fixed_signed(number, decimals) : ab::fixed(number, decimals);
  };
  if (value->n < 2) return text(value->mean);
  return fmt::format("{} ({} to {})", text(value->mean), text(value->interval.low),
                     text(value->interval.high));
}

std::string charged_table(const StudyResult& r) {
  std::string out =
      head({"arm", "failures", "saves", "written, complete saves", "MB a save", "ms a save", "save, h",
            "load, h", "restart, h", "repeated, h", "overhead, %", "full / arm", "PLS", "lost accesses, %"});
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const RecoveryArm& arm = r.as<RecoveryResult>().arms[a];
    if (arm.runs.empty()) continue;
    out += row({r.study.arms[a].title, ab::fixed(arm.failures, 1), ab::fixed(arm.saves, 0),
                ab::fixed(arm.written_share, 2),
                arm.saves > 0 ? ab::fixed(arm.written / arm.saves / 1e6, 2) : "–",
                arm.saves > 0 ? ab::fixed(1e3 * arm.save_s, 0) : "–", ab::fixed(arm.charged.save, 3),
                ab::fixed(arm.charged.load, 3), ab::fixed(arm.charged.restart, 3),
                ab::fixed(arm.charged.repeat, 3), interval_text(arm.overhead_percent, 2),
                interval_text(arm.ratio, 1), interval_text(arm.pls, 4), interval_text(arm.lost_accesses, 1)});
  }
  return out;
}

std::string drawn_table(const StudyResult& r) {
  std::string out = head({"arm", "schedules", "failures, mean", "overhead, %", "full / arm, mean of ratios",
                          "ratio of means", "PLS, mean", "PLS, by equation"});
  bool any = false;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const std::optional<ScheduleDraws>& drawn = r.as<RecoveryResult>().arms[a].drawn;
    if (!drawn) continue;
    any = true;
    const bool partial = drawn->pls.n > 0;
    out += row({r.study.arms[a].title, std::to_string(drawn->draws), ab::fixed(drawn->failures, 2),
                interval_text(drawn->overhead_percent, 2), interval_text(drawn->ratio, 1),
                ab::fixed(drawn->ratio_of_means, 1), partial ? interval_text(drawn->pls, 4) : "–",
                drawn->law ? ab::fixed(*drawn->law, 4) : "–"});
  }
  return any ? out : "";
}

void members(JsonWriter& json, const char* name, const std::optional<ab::MeanEstimate>& value) {
  json.begin_object(name);
  json.member("mean", value ? value->mean : JsonWriter::kNull);
  json.member("low", value ? value->interval.low : JsonWriter::kNull);
  json.member("high", value ? value->interval.high : JsonWriter::kNull);
  json.member("n", static_cast<std::int64_t>(value ? value->n : 0));
  json.end_object();
}

}  // namespace

std::string recovery_tables(const StudyResult& r) {
  std::string out = "\n## What failures and saves cost\n\n" + charged_table(r);
  out +=
      "\nHours of the emulated job, mean over the seeds: sums of what each executed event was charged "
      "(recovery.jsonl), in brackets the interval over the seeds. Bytes of a save by those of a complete "
      "one. "
      "Milliseconds are of this machine: copy, write, sync, verification. PLS: portion of lost samples, by "
      "the "
      "policy's account; lost accesses: of all so far, those of lost rows since each was saved, summed over "
      "failures.\n";
  const std::string drawn = drawn_table(r);
  if (!drawn.empty()) {
    out += "\n## Schedules without training\n\n" + drawn;
    out +=
        "\nEach arm's saves as its runs made and paid them, under failures drawn anew; the same draws for "
        "all arms.\n";
  }
  if (!r.as<RecoveryResult>().pairs.empty()) {
    out += fmt::format("\n## Differences in {}, per pair of equal seeds\n\n", r.study.metric);
    out += head({"arms", "difference", "pairs"});
    for (const RecoveryDifference& pair : r.as<RecoveryResult>().pairs)
      out += row(
          {pair.title, interval_text(pair.value, 5, true), std::to_string(pair.value ? pair.value->n : 0)});
  }
  if (!r.as<RecoveryResult>().fits.empty()) {
    out += fmt::format("\n## Lost samples against {}\n\n", r.study.metric);
    out += head(
        {"failures", "arms", "slope per unit of PLS", "at PLS 0", "correlation of means", "of single runs"});
    for (const RecoveryFit& fit : r.as<RecoveryResult>().fits)
      out += row({fit.title, std::to_string(fit.points.size()), ab::fixed_signed(fit.slope, 4),
                  ab::fixed_signed(fit.intercept, 5), ab::fixed(fit.correlation, 3),
                  ab::fixed(fit.correlation_of_runs, 3)});
    out +=
        "\nLeast squares through one point per arm: its portion of lost samples, and its metric minus the "
        "baseline's over pairs of equal seeds.\n";
  }
  if (!r.as<RecoveryResult>().access_shares.empty()) {
    out += "\nShare of all row accesses that each failure domain has:";
    for (const double share : r.as<RecoveryResult>().access_shares) out += " " + ab::fixed(100 * share, 1);
    out += " %.";
  }
  for (const RecoveryArm& arm : r.as<RecoveryResult>().arms) {
    if (!arm.always_whole) continue;
    out += fmt::format(" Tables that every priority save writes whole hold {} % of the tables' bytes.",
                       ab::fixed(100 * *arm.always_whole, 1));
    break;
  }
  return out + "\n";
}

void Recovery::json(JsonWriter& json, const StudyResult& r) const {
  json.begin_object("recovery");
  json.begin_array("arms");
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const RecoveryArm& arm = r.as<RecoveryResult>().arms[a];
    json.begin_object();
    json.member("name", r.study.arms[a].arm.name);
    json.member("failures", arm.failures);
    json.member("saves", arm.saves);
    json.member("written_in_complete_saves", arm.written_share);
    json.member("written_bytes", arm.written);
    json.member("save_seconds", arm.save_s);
    json.member("save_hours", arm.charged.save);
    json.member("load_hours", arm.charged.load);
    json.member("restart_hours", arm.charged.restart);
    json.member("repeat_hours", arm.charged.repeat);
    members(json, "overhead_percent", arm.overhead_percent);
    members(json, "full_over_arm", arm.ratio);
    members(json, "pls", arm.pls);
    members(json, "lost_access_percent", arm.lost_accesses);
    if (arm.drawn) {
      json.begin_object("schedules");
      json.member("draws", arm.drawn->draws);
      json.member("failures", arm.drawn->failures);
      members(json, "overhead_percent", arm.drawn->overhead_percent);
      members(json, "full_over_arm", arm.drawn->ratio);
      json.member("full_over_arm_of_means", arm.drawn->ratio_of_means);
      members(json, "pls", arm.drawn->pls.n > 0 ? std::optional(arm.drawn->pls) : std::nullopt);
      json.member("pls_by_equation", arm.drawn->law ? *arm.drawn->law : JsonWriter::kNull);
      json.end_object();
    }
    json.end_object();
  }
  json.end_array();
  json.begin_array("differences");
  for (const RecoveryDifference& pair : r.as<RecoveryResult>().pairs) {
    json.begin_object();
    json.member("title", pair.title);
    members(json, "value", pair.value);
    json.end_object();
  }
  json.end_array();
  json.objects("lines", r.as<RecoveryResult>().fits, [&](const RecoveryFit& fit) {
    json.member("title", fit.title);
    json.member("slope", fit.slope);
    json.member("intercept", fit.intercept);
    json.member("correlation", fit.correlation);
    json.member("correlation_of_runs", fit.correlation_of_runs);
    json.objects("points", fit.points, [&](const RecoveryFit::Point& point) {
      json.member("pls", point.pls);
      members(json, "difference", point.difference);
    });
  });
  json.end_object();
  Arms::json(json, r);
}

std::string Recovery::lines(const StudyResult& r) const {
  std::string out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const RecoveryArm& arm = r.as<RecoveryResult>().arms[a];
    if (arm.runs.empty()) continue;
    out += fmt::format("  {:<24}overhead {} %", r.study.arms[a].arm.name,
                       interval_text(arm.overhead_percent, 2));
    if (arm.drawn)
      out += fmt::format("; over {} schedules {} %, full / arm {}", arm.drawn->draws,
                         ab::fixed(arm.drawn->overhead_percent.mean, 2), ab::fixed(arm.drawn->ratio.mean, 1));
    if (r.arms[a].value) out += fmt::format("; {} {}", r.study.metric, ab::fixed(r.arms[a].value->mean, 4));
    out += "\n";
  }
  for (const RecoveryDifference& pair : r.as<RecoveryResult>().pairs)
    out += fmt::format("  {}: {}\n", pair.title, interval_text(pair.value, 5, true));
  for (const RecoveryFit& fit : r.as<RecoveryResult>().fits)
    out += fmt::format("  {}: slope {} per unit of PLS, correlation {}\n", fit.title,
                       ab::fixed_signed(fit.slope, 4), ab::fixed(fit.correlation, 3));
  return out;
}

std::string Recovery::tables(const StudyResult& r) const {
  return arms_table(r, false, true) + recovery_tables(r);
}

// The figure: a bar per arm, divided by the causes of its charged hours, or lines.

namespace {

constexpr double kRowHeight = 24, kTopMargin = 92, kLeft = 240, kRight = 90, kBottom = 44, kBar = 14;
constexpr const char* kParts[] = {"saves", "loads", "restarts", "work done twice"};

/// A round step for about `count` ticks up to `most`.
double tick_step(double most, int count) {
  const double raw = most / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

/// For a study with lines: the loss in the metric over the portion of lost samples. The whole file.
std::string recovery_lines_figure(const StudyResult& r) {
  LineFigure figure{.x_title = "portion of lost samples (PLS)",
                    .names = {},
                    .under_title = "means over pairs of equal seeds",
                    .panels = {{.title = fmt::format("{}, difference to no failure", r.study.metric),
                                .lines = {},
                                .from_zero = false,
                                .slope = {}}}};
  for (const RecoveryFit& fit : r.as<RecoveryResult>().fits) {
    figure.names.push_back(fit.title);
    std::vector<ab::Point>& line = figure.panels.front().lines.emplace_back();
    for (const RecoveryFit::Point& point : fit.points) line.push_back({point.pls, point.difference.mean});
  }
  return line_figure(r, figure);
}

}  // namespace

std::string recovery_figure(const StudyResult& r, double width, double& height) {
  std::vector<std::size_t> shown;
  double most = 0;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const RecoveryArm& arm = r.as<RecoveryResult>().arms[a];
    if (arm.runs.empty()) continue;
    shown.push_back(a);
    most = std::max(most, arm.overhead_percent->mean);
  }
  height = kTopMargin + kRowHeight * static_cast<double>(shown.size()) + kBottom;
  ab::Svg svg(width, height, "chart", r.study.title);
  svg.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  svg.text({16, 46},
           caution(r.size).empty() ? "overhead in per cent of productive hours; mean over the seeds"
                                   : caution(r.size),
           caution(r.size).empty() ? "tick" : "warn", ab::Anchor::kStart);
  double x = 16;
  for (std::size_t part = 0; part < std::size(kParts); ++part) {
    svg.rect({x, 60}, 12, 12, fmt::format("area arm{}", part));
    svg.text({x + 18, 70}, kParts[part], "label", ab::Anchor::kStart);
    x += 34 + 7.2 * static_cast<double>(std::string_view(kParts[part]).size());
  }
  const double bottom = height - kBottom;
  const double step = most > 0 ? tick_step(most, 6) : 1;
  const double end = std::max(step, step * std::ceil(most / step));
  const auto at = [&](double percent) { return kLeft + (width - kLeft - kRight) * percent / end; };
  for (double tick = 0; tick <= end + step / 2; tick += step) {
    svg.line({at(tick), kTopMargin - 8}, {at(tick), bottom}, "grid");
    svg.text({at(tick), bottom + 17}, fmt::format("{:g}", tick), "tick", ab::Anchor::kMiddle);
  }
  svg.text({(kLeft + width - kRight) / 2, bottom + 36}, "overhead, %", "axis-title", ab::Anchor::kMiddle);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const RecoveryArm& arm = r.as<RecoveryResult>().arms[shown[i]];
    const double top = kTopMargin + kRowHeight * static_cast<double>(i);
    svg.text({kLeft - 10, top + kBar - 2}, r.study.arms[shown[i]].title, "label", ab::Anchor::kEnd);
    const double hours = arm.charged.total();
    double from = 0;
    std::size_t part = 0;
    for (const double charged :
         {arm.charged.save, arm.charged.load, arm.charged.restart, arm.charged.repeat}) {
      const double percent = hours > 0 ? arm.overhead_percent->mean * charged / hours : 0;
      if (percent > 0)
        svg.rect({at(from), top}, at(from + percent) - at(from), kBar, fmt::format("area arm{}", part));
      from += percent;
      ++part;
    }
    svg.text({at(from) + 6, top + kBar - 2}, ab::fixed(arm.overhead_percent->mean, 2), "label",
             ab::Anchor::kStart);
  }
  return svg.take();
}

std::string Recovery::figure(const StudyResult& r) const {
  if (!r.as<RecoveryResult>().fits.empty()) return recovery_lines_figure(r);
  double height = 0;
  const std::string drawing = recovery_figure(r, kFigureWidth, height);
  return standing_alone(r, height, drawing);
}

std::shared_ptr<StudyKind> make_recovery_kind() {
  return std::make_shared<Recovery>();
}

}  // namespace tenon::reproduce
