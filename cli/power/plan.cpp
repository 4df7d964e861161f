// Keys, types and misspellings go through the core's configuration layer; see plan.hpp.
#include "power/plan.hpp"

#include "config/words.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <set>

namespace tenon::power {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestFile = std::int64_t{1} << 31;
constexpr int kMostRanks = 4096;
constexpr double kMostSamples = 2e8, kMostPhases = 2e7;

constexpr auto kOffsets =
    option::choice<Offsets>({{"measured", Offsets::kMeasured}, {"aligned", Offsets::kAligned}});
constexpr auto kMeasured = option::choice<Measured>({{"job", Measured::kJob}, {"all", Measured::kAll}});
constexpr auto kPlaces = option::choice<bool>({{"worker", false}, {"site", true}});

constexpr OptionSpec kPowerOptions[] = {
    option::path("trace", nullptr)
        .doc_text(
            "folder of a run with the observer `trace`: trace.rank*.json are the phases of workers; else "
            "[[power.phase]]"),
    option::integer("repeat", "1").between(1, 1000000).doc_text("times that the phases follow one another"),
    option::path("levels", "'configs/power/h100_like.toml'").doc_text("file of power levels by phase"),
    option::path("spec", "'configs/power/example_utility.toml'").doc_text("file of the grid's limits"),
    option::text("folder", nullptr).doc_text("of the results; power/ and the file's name unless given"),
    option::real("rate_hz", "1000").between(1, 1e6).in_unit("Hz").doc_text("samples a second"),
    option::real("lead_s", "1").between(0, 1e6).in_unit("s").doc_text("idle time before and after the job"),
    option::text("measure", "'job'")
        .one_of(kMeasured)
        .doc_text(
            "job: the metrics are those of the job after settle_s; all: its start and its end count, too"),
    option::real("settle_s", "0")
        .between(0, 1e6)
        .in_unit("s")
        .doc_text("beginning of the job that the metrics leave out"),
    option::real("constant_share", "0")
        .between(0, 100)
        .doc_text("processors, network and cooling: drawn at all times, in rated powers of all workers"),
};

constexpr OptionSpec kWorkerOptions[] = {
    option::integer("count", "0").between(0, 1000000).doc_text("workers; 0 = one per timeline"),
    option::text("offsets", "'measured'")
        .one_of(kOffsets)
        .doc_text("measured: as timelines have them; aligned: all begin together"),
    option::real("jitter_s", "0")
        .between(0, 1e4)
        .in_unit("s")
        .doc_text("standard deviation of a further offset of each worker, drawn once"),
    option::integer("seed", "1").at_least(0).doc_text("of the drawn offsets"),
};

constexpr OptionSpec kPhaseOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("of a level"),
    option::real("seconds", nullptr).mandatory().between(1e-6, 1e7).in_unit("s").doc_text("length"),
};

constexpr OptionSpec kPolicyOptions[] = {
    option::text("at", nullptr)
        .mandatory()
        .one_of(kPlaces)
        .doc_text("worker: on the load of each worker; site: on their sum and the constant share"),
};

constexpr OptionSpec kPluginOptions[] = {
    option::paths("paths", "[]").doc_text("files and folders to search for plugins first"),
};

constexpr OptionSpec kSpecOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("for tables and figures"),
    option::text("note", "''").doc_text("printed beside the verdict: where the limits come from"),
    option::real("ramp_up", nullptr)
        .mandatory()
        .at_least(0)
        .in_unit("1/s")
        .doc_text("largest rise, rated powers a second"),
    option::real("ramp_down", nullptr)
        .mandatory()
        .at_least(0)
        .in_unit("1/s")
        .doc_text("largest fall, rated powers a second"),
    option::real("ramp_window_s", "0.1")
        .between(1e-6, 1e4)
        .in_unit("s")
        .doc_text("over which power is averaged"),
    option::real("range", nullptr).mandatory().at_least(0).doc_text("largest swing, rated powers"),
    option::real("range_window_s", "10")
        .between(1e-6, 1e6)
        .in_unit("s")
        .doc_text("within which the swing counts"),
    option::real("band_low_hz", "0.1")
        .between(1e-6, 1e6)
        .in_unit("Hz")
        .doc_text("lower edge of the critical band"),
    option::real("band_high_hz", "20").between(1e-6, 1e6).in_unit("Hz").doc_text("upper edge"),
    option::real("band_share", nullptr)
        .mandatory()
        .between(0, 1e6)
        .doc_text("largest energy in the band, of the unmitigated trace"),
};

constexpr OptionSpec kLevelsOptions[] = {
    option::text("name", nullptr).mandatory().doc_text("for tables and figures"),
    option::text("note", "''").doc_text("where the levels come from"),
    option::real("rated_watts", nullptr)
        .mandatory()
        .between(1e-6, 1e9)
        .in_unit("W")
        .doc_text("of one worker"),
    option::real("rise_s", "0")
        .between(0, 1e4)
        .in_unit("s")
        .doc_text("time constant of a rise, unless a level has its own"),
    option::real("fall_s", "0").between(0, 1e4).in_unit("s").doc_text("time constant of a fall"),
};

constexpr OptionSpec kLevelOptions[] = {
    option::text("phase", nullptr)
        .mandatory()
        .doc_text(
            "forward, backward, optimizer, communication, evaluate, data, save, idle, or a name of a script"),
    option::real("share", nullptr).mandatory().between(0, 10).doc_text("power, of the rated power"),
    option::real("activity", "0").between(0, 1).doc_text("of the workload, as a filler sees it"),
    option::real("rise_s", nullptr)
        .between(0, 1e4)
        .in_unit("s")
        .doc_text("time constant of a rise into this phase"),
    option::real("fall_s", nullptr).between(0, 1e4).in_unit("s").doc_text("time constant of a fall into it"),
};

/// Options of a table that may be absent.
std::unique_ptr<ResolvedOptions> options_of(const Value* table, const std::string& owner,
                                            std::span<const OptionSpec> specs,
                                            std::vector<std::string> other_keys,
                                            std::vector<std::string>& problems) {
  static const Value kEmpty;
  return std::move(resolve_options({.table = table == nullptr ? kEmpty : *table,
                                    .owner = owner,
                                    .specs = option_list(specs),
                                    .other_keys = std::move(other_keys),
                                    .hint = "see docs/power.md"},
                                   problems)
                       .options);
}

/// The tables of a list, checked to be one.
const Value::Array& tables_of(const Value* parent, const char* key, std::vector<std::string>& problems) {
  static const Value::Array kNone;
  const Value* list = parent == nullptr ? nullptr : parent->find(key);
  if (list == nullptr) return kNone;
  if (!list->is_array()) {
    problems.push_back(fmt::format("{}: expected tables [[power.{}]], found {}", list->origin.text(), key,
                                   list->description()));
    return kNone;
  }
  for (const Value& table : list->array()) {
    if (table.is_table()) continue;
    problems.push_back(
        fmt::format("{}: expected a table, found {}", table.origin.text(), table.description()));
    return kNone;
  }
  return list->array();
}

void check_tables(const Config& config, std::span<const std::string> known, const char* what,
                  std::vector<std::string>& problems) {
  for (const Member& member : config.root().table()) {
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    problems.push_back(fmt::format("{}: {} has no table '{}'{} (known: {})", member.origin.text(), what,
                                   member.key, config::suggestion(member.key, known),
                                   fmt::join(known, ", ")));
  }
}

/// Options of the table `key`, which a file of `what` has, beside other tables that are `known`. Throws
/// Error(kConfig).
std::unique_ptr<ResolvedOptions> options_of_file(const Config& config, const std::string& path,
                                                 const char* what, const std::string& key,
                                                 std::span<const OptionSpec> specs,
                                                 std::span<const std::string> known) {
  std::vector<std::string> problems;
  check_tables(config, known, what, problems);
  const Value* table = config.find(key);
  if (table == nullptr) problems.push_back(fmt::format("{}: there is no table [{}]", path, key));
  throw_problems(problems);
  auto options = options_of(table, "[" + key + "]", specs, {}, problems);
  throw_problems(problems);
  return options;
}

std::string folder_of(const Options& options, const std::string& path) {
  std::string folder =
      options.has("folder") ? std::string(options.text("folder")) : "power/" + fs::path(path).stem().string();
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

std::vector<PhaseLog> logs_of_run(const std::string& folder) {
  const auto files = make_posix_files();
  std::map<std::int64_t, std::map<int, std::string>> paths;  // by first slot and rank
  if (files->exists(folder)) {
    for (const DirectoryEntry& entry : files->list(folder)) {
      TimelineFile file;
      if (!entry.is_directory && is_timeline(entry.name, file) && file.rank < kMostRanks)
        paths[file.first_slot][file.rank] = folder + "/" + entry.name;
    }
  }
  Segments segments;
  for (auto segment = paths.begin(); segment != paths.end(); ++segment) {
    // What a run did beyond the save that it was resumed from is done again by the next segment.
    const auto next = std::next(segment);
    const std::int64_t end = next == paths.end() ? std::numeric_limits<std::int64_t>::max() : next->first;
    for (const auto& [rank, path] : segment->second)
      segments[segment->first][rank] = parse_timeline(read_text(*files, path, kLargestFile), path, end);
  }
  std::vector<PhaseLog> logs = joined(segments);
  std::erase_if(logs, [](const PhaseLog& log) { return log.phases.empty(); });
  if (logs.empty())
    fail_config(fmt::format(
        "{}: there is no trace.rank0.json; record a run with [[observe]] type = \"trace\"", folder));
  require_overlap(logs);
  return logs;
}

PhaseLog log_of_script(const Value::Array& tables, const Levels& levels, std::vector<std::string>& problems) {
  PhaseLog log{"script", {}, {}};
  double at = 0;
  for (const Value& table : tables) {
    const auto before = problems.size();
    const auto options = options_of(&table, "[[power.phase]]", kPhaseOptions, {}, problems);
    if (problems.size() > before) continue;
    const std::string name(options->text("name"));
    try {
      levels.of(name);
    } catch (const Error& error) {
      problems.push_back(fmt::format("{}: {}", table.find("name")->origin.text(), error.what()));
    }
    const double seconds = options->real("seconds");
    log.phases.push_back({at, at + seconds, name});
    at += seconds;
  }
  return log;
}

/// A misspelt `type` is a better message than a missing one.
std::string missing_type(const Value& table) {
  for (const Member& member : table.table()) {
    if (config::edit_distance(member.key, "type") == 1)
      return fmt::format("{}: [[power.policy]] has no option '{}'; did you mean 'type'?",
                         member.origin.text(), member.key);
  }
  return fmt::format("{}: [[power.policy]] has no type; name a component of kind power (see: tenon inspect)",
                     table.origin.text());
}

void read_policies(const Value* power, const ComponentCatalog& catalog, Plan& plan,
                   std::vector<std::string>& problems) {
  for (const Value& table : tables_of(power, "policy", problems)) {
    const Value* type = table.find("type");
    if (type == nullptr || !type->is_text()) {
      problems.push_back(missing_type(table));
      continue;
    }
    const auto before = problems.size();
    Value own, rest;
    for (const Member& member : table.table())
      (member.key == "at" ? own : rest).set(member.key, member.value, member.origin);
    own.origin = rest.origin = table.origin;
    const auto place = options_of(&own, "[[power.policy]]", kPolicyOptions, {}, problems);
    PolicyPlan policy;
    policy.type = type->text();
    try {
      Resolution found = resolve_options(
          component_request(rest, catalog.describe(Power::kKind, policy.type), &catalog), problems);
      policy.options = std::move(found.options);
    } catch (const Error& error) {
      problems.push_back(fmt::format("{}: {}", type->origin.text(), error.what()));
    }
    if (problems.size() > before) continue;
    policy.at_site = place->choice("at", kPlaces);
    if (!policy.at_site && !plan.policies.empty() && plan.policies.back().at_site)
      problems.push_back(
          fmt::format("{}: a policy at a worker follows one at the site; write those of workers first",
                      table.origin.text()));
    plan.policies.push_back(std::move(policy));
  }
}

}  // namespace

std::vector<config::TableSpecs> power_tables() {
  return {{"power", kPowerOptions},
          {"power.workers", kWorkerOptions},
          {"power.phase", kPhaseOptions, true},
          {"power.policy", kPolicyOptions, true, Power::kKind},
          {"plugins", kPluginOptions},
          {"spec", kSpecOptions},
          {"levels", kLevelsOptions},
          {"level", kLevelOptions, true}};
}

GridSpec read_spec(const std::string& path) {
  const Config config = Config::load(path, {});
  const std::string known[] = {"spec"};
  const auto options = options_of_file(config, path, "a specification", "spec", kSpecOptions, known);
  GridSpec spec;
  spec.path = path;
  spec.name = options->text("name");
  spec.note = options->text("note");
  spec.ramp_up = options->real("ramp_up");
  spec.ramp_down = options->real("ramp_down");
  spec.ramp_window_s = options->real("ramp_window_s");
  spec.range = options->real("range");
  spec.range_window_s = options->real("range_window_s");
  spec.band_low_hz = options->real("band_low_hz");
  spec.band_high_hz = options->real("band_high_hz");
  spec.band_share = options->real("band_share");
  if (spec.band_low_hz >= spec.band_high_hz)
    fail_config(fmt::format("{}: band_low_hz is {:g}, not below band_high_hz of {:g}",
                            options->place_of("band_low_hz"), spec.band_low_hz, spec.band_high_hz));
  return spec;
}

Levels read_levels(const std::string& path) {
  const Config config = Config::load(path, {});
  const std::string known[] = {"levels", "level"};
  const auto options = options_of_file(config, path, "a file of levels", "levels", kLevelsOptions, known);
  Levels levels;
  levels.path = path;
  levels.name = options->text("name");
  levels.note = options->text("note");
  levels.rated_watts = options->real("rated_watts");
  const double rise_s = options->real("rise_s"), fall_s = options->real("fall_s");
  std::vector<std::string> problems;
  std::set<std::string> names;
  for (const Value& entry : tables_of(&config.root(), "level", problems)) {
    const auto before = problems.size();
    const auto level = options_of(&entry, "[[level]]", kLevelOptions, {}, problems);
    if (problems.size() > before) continue;
    const std::string phase(level->text("phase"));
    if (!names.insert(phase).second)
      problems.push_back(fmt::format("{}: phase '{}' has a level already", entry.origin.text(), phase));
    levels.levels.push_back({phase, level->real("share"), level->real("activity"),
                             level->has("rise_s") ? level->real("rise_s") : rise_s,
                             level->has("fall_s") ? level->real("fall_s") : fall_s});
  }
  if (!names.contains("idle"))
    problems.push_back(fmt::format("{}: there is no [[level]] of phase 'idle'", path));
  throw_problems(problems);
  return levels;
}

void read_file(const std::string& path, const ComponentCatalog& catalog) {
  const Config config = Config::load(path, {});
  if (config.find("spec") != nullptr) {
    read_spec(path);
  } else if (config.find("levels") != nullptr || config.find("level") != nullptr) {
    read_levels(path);
  } else {
    read_plan(config, catalog, path);
  }
}

std::vector<PhaseLog> repeated(std::vector<PhaseLog> logs, std::int64_t times) {
  double begin = logs[0].begin_s(), end = logs[0].end_s();
  for (const PhaseLog& log : logs) begin = std::min(begin, log.begin_s()), end = std::max(end, log.end_s());
  for (PhaseLog& log : logs) {
    const std::vector<Phase> once = log.phases;
    for (std::int64_t k = 1; k < times; ++k) {
      // From the beginning and not from copy to copy: sums of lengths would drift.
      const double shift = static_cast<double>(k) * (end - begin);
      if (once.front().begin_s + shift > log.phases.back().end_s)
        log.phases.push_back({log.phases.back().end_s, once.front().begin_s + shift, "idle"});
      for (const Phase& phase : once)
        log.phases.push_back({phase.begin_s + shift, phase.end_s + shift, phase.name});
    }
  }
  return logs;
}

Plan read_plan(const Config& config, const ComponentCatalog& catalog, const std::string& path) {
  Plan plan;
  std::vector<std::string> problems;
  const std::string known[] = {"power", "plugins"};
  check_tables(config, known, "a simulation of power", problems);
  const Value* power = config.find("power");
  if (power == nullptr) problems.push_back(fmt::format("{}: there is no table [power]", path));
  if (const Value* plugins = config.find("plugins")) {
    options_of(plugins, "[plugins]", kPluginOptions, {}, problems);
    if (problems.empty()) plan.plugin_paths = config::plugin_paths(config);
  }
  throw_problems(problems);
  const auto options = options_of(power, "[power]", kPowerOptions, {"workers", "phase", "policy"}, problems);
  const auto workers = options_of(power->find("workers"), "[power.workers]", kWorkerOptions, {}, problems);
  throw_problems(problems);

  plan.name = fs::path(path).stem().string();
  plan.where = power->origin.text();
  plan.folder = folder_of(*options, path);
  plan.rate_hz = options->real("rate_hz");
  plan.lead_s = options->real("lead_s");
  plan.measured = options->choice("measure", kMeasured);
  plan.settle_s = options->real("settle_s");
  plan.constant_share = options->real("constant_share");
  plan.repeat = options->integer("repeat");
  plan.levels = read_levels(std::string(options->text("levels")));
  plan.spec = read_spec(std::string(options->text("spec")));
  const Value::Array& phases = tables_of(power, "phase", problems);
  if (options->has("trace") == !phases.empty())
    problems.push_back(fmt::format(
        "{}: {}", power->origin.text(),
        phases.empty()
            ? "there are no phases; name a run's folder by `trace`, or write tables [[power.phase]]"
            : "both `trace` and [[power.phase]] say what the phases are; leave one out"));
  throw_problems(problems);
  if (options->has("trace")) {
    plan.logs = logs_of_run(std::string(options->text("trace")));
  } else {
    plan.logs.push_back(log_of_script(phases, plan.levels, problems));
  }
  read_policies(power, catalog, plan, problems);
  throw_problems(problems);

  for (const PhaseLog& log : plan.logs)
    plan.notes.insert(plan.notes.end(), log.notes.begin(), log.notes.end());
  plan.offsets = workers->choice("offsets", kOffsets);
  if (plan.offsets == Offsets::kAligned) {
    for (PhaseLog& log : plan.logs) {
      const double begin = log.begin_s();
      for (Phase& phase : log.phases) phase.begin_s -= begin, phase.end_s -= begin;
    }
  }
  plan.workers.count = static_cast<int>(workers->integer("count"));
  if (plan.workers.count == 0) plan.workers.count = static_cast<int>(plan.logs.size());
  plan.workers.jitter_s = workers->real("jitter_s");
  plan.workers.seed = static_cast<std::uint64_t>(workers->integer("seed"));
  double begin = plan.logs[0].begin_s(), end = plan.logs[0].end_s();
  for (const PhaseLog& log : plan.logs)
    begin = std::min(begin, log.begin_s()), end = std::max(end, log.end_s());
  const double seconds = (end - begin) * static_cast<double>(plan.repeat) + 2 * plan.lead_s;
  if (seconds * plan.rate_hz > kMostSamples)
    fail_config(fmt::format(
        "{}: {:.4g} s at {:g} Hz are {:.3g} samples, expected at most {:g}; lower repeat or rate_hz",
        power->origin.text(), seconds, plan.rate_hz, seconds * plan.rate_hz, kMostSamples));
  for (const PhaseLog& log : plan.logs) {
    if (static_cast<double>(log.phases.size()) * static_cast<double>(plan.repeat) <= kMostPhases) continue;
    fail_config(fmt::format("{}: {} phases {} times are more than {:g}; lower repeat", power->origin.text(),
                            log.phases.size(), plan.repeat, kMostPhases));
  }
  plan.logs = repeated(std::move(plan.logs), plan.repeat);
  return plan;
}

}  // namespace tenon::power
