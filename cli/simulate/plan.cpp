// Keys, types and misspellings go through the core's configuration layer.
#include "simulate/plan.hpp"

#include "config/run_schema.hpp"
#include "config/words.hpp"

#include <tenon/error.hpp>
#include <tenon/simulator.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tenon::simulate {
namespace {

std::int64_t number(const char* name, const char* text, std::int64_t least) {
  std::int64_t value = 0;
  const char* const end = text + std::char_traits<char>::length(text);
  const auto [stopped, code] = std::from_chars(text, end, value);
  if (code != std::errc() || stopped != end || value < least)
    fail_config(
        fmt::format("tenon simulate: {} is '{}', expected a whole number of at least {}", name, text, least));
  return value;
}

}  // namespace

std::optional<Place> launched() {
  // Slurm sets its first two for batch scripts, too; the number of a step's tasks only if srun started one.
  static constexpr const char* kNames[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                              {"PMI_RANK", "PMI_SIZE"},
                                              {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [index_name, count_name] : kNames) {
    const char *index = std::getenv(index_name), *count = std::getenv(count_name);
    if (index == nullptr || count == nullptr) continue;
    const Place place{number(index_name, index, 0), number(count_name, count, 1)};
    if (place.index >= place.count)
      fail_config(fmt::format("tenon simulate: {} is {}, and {} is {}: expected less", index_name,
                              place.index, count_name, place.count));
    if (place.count == 1) return std::nullopt;
    return place;
  }
  return std::nullopt;
}

namespace {

constexpr const char* kFormats[] = {"npy", "hdf5", nullptr};

constexpr OptionSpec kSimulateOptions[] = {
    option::integer("samples", nullptr)
        .mandatory()
        .between(1, 100000000)
        .doc_text("tasks, each of which makes a sample"),
    option::integer("seed", "1").at_least(0).doc_text("of every random number"),
    option::text("folder", nullptr).doc_text("of the results; simulations/ and the file's name unless given"),
    option::text("format", "'npy'")
        .one_of(kFormats)
        .doc_text("of the results: one .npy file per sample and field; hdf5: these, and all finished samples "
                  "in samples.h5 "
                  "beside them when the program ends"),
    option::integer("workers", "0")
        .between(0, 4096)
        .doc_text("processes; 0 = one per processor, or one for each that a launcher started"),
    option::integer("retries", "2")
        .between(0, 1000)
        .doc_text("further attempts of a task whose time was over or whose process died"),
    option::real("task_timeout_s", "3600").at_least(0.001).in_unit("s").doc_text("longest attempt of a task"),
    option::real("timeout_s", "0")
        .at_least(0)
        .in_unit("s")
        .doc_text("longest run of the program, which can be continued; 0 = no limit"),
    option::real("crash_share", "0")
        .between(0, 1)
        .doc_text(
            "share of the tasks whose process is killed at the end of the first attempt; a test of recovery"),
    option::real("hang_share", "0")
        .between(0, 1)
        .doc_text("share of the tasks whose first attempt waits until task_timeout_s is over; a test of "
                  "recovery"),
};

constexpr OptionSpec kPluginOptions[] = {
    option::paths("paths", "[]").doc_text("files and folders to search for plugins first"),
};

std::int64_t processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

Settings settings_of(const Options& options, const std::string& path) {
  Settings settings;
  settings.samples = options.integer("samples");
  settings.hdf5 = options.text("format") == "hdf5";
  settings.seed = static_cast<std::uint64_t>(options.integer("seed"));
  // A launcher has already chosen the number of processes.
  const std::int64_t each = launched() ? 1 : processors();
  settings.workers = options.integer("workers") == 0 ? each : options.integer("workers");
  settings.workers = std::min(settings.workers, settings.samples);
  settings.task_timeout_s = options.real("task_timeout_s");
  settings.timeout_s = options.real("timeout_s");
  settings.retries = options.integer("retries");
  settings.crash_share = options.real("crash_share");
  settings.hang_share = options.real("hang_share");
  settings.folder = options.has("folder") ? std::string(options.text("folder"))
                                          : "simulations/" + std::filesystem::path(path).stem().string();
  while (settings.folder.size() > 1 && settings.folder.back() == '/') settings.folder.pop_back();
  return settings;
}

void check_tables(const Config& config, std::vector<std::string>& problems) {
  const std::vector<std::string> known = table_names();
  for (const Member& member : config.root().table()) {
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    problems.push_back(fmt::format("{}: a simulation has no table '{}'{} (known: {})", member.origin.text(),
                                   member.key, config::suggestion(member.key, known),
                                   fmt::join(known, ", ")));
  }
}

/// A misspelt `type` is a better message than a missing one.
std::string missing_type(const Value* simulator, const std::string& path) {
  if (simulator == nullptr)
    return fmt::format("{}: there is no table [simulator]; write one with `type = ...`", path);
  if (simulator->is_table()) {
    for (const Member& member : simulator->table()) {
      if (config::edit_distance(member.key, "type") == 1)
        return fmt::format("{}: [simulator] has no option '{}'; did you mean 'type'?", member.origin.text(),
                           member.key);
    }
  }
  return fmt::format("{}: [simulator] has no type; name a component of kind simulator (see: tenon inspect)",
                     simulator->origin.text());
}

/// The table as it is written into the manifest.
std::string canonical(const Value& table, const std::string& type) {
  Value whole;
  whole.set("type", Value(type), {});
  for (const Member& member : table.table()) {
    if (member.key != "type") whole.set(member.key, member.value, {});
  }
  Value root;
  root.set("simulator", std::move(whole), {});
  return to_toml(root, false);
}

}  // namespace

std::vector<std::string> table_names() {
  return {"simulate", "simulator", "plugins"};
}

std::vector<config::TableSpecs> simulation_tables() {
  return {{"simulate", kSimulateOptions},
          {"simulator", {}, false, Simulator::kKind},
          {"plugins", kPluginOptions}};
}

Plan read_plan(const Config& config, const ComponentCatalog& catalog, const std::string& path) {
  Plan plan;
  std::vector<std::string> problems;
  check_tables(config, problems);
  const Value empty;
  const Value* table = config.find("simulate");
  OptionRequest request{.table = table == nullptr ? empty : *table,
                        .owner = "[simulate]",
                        .specs = option_list(kSimulateOptions),
                        .hint = "see docs/simulating.md"};
  if (table == nullptr) {
    problems.push_back(fmt::format("{}: there is no table [simulate]; write one with `samples = N`", path));
  } else {
    const Resolution found = resolve_options(request, problems);
    if (problems.empty()) plan.settings = settings_of(*found.options, path);
  }
  if (const Value* plugins = config.find("plugins")) {
    resolve_options({.table = *plugins, .owner = "[plugins]", .specs = option_list(kPluginOptions)},
                    problems);
    if (problems.empty()) plan.plugin_paths = config::plugin_paths(config);
  }
  const Value* simulator = config.find("simulator");
  const Value* type = simulator == nullptr ? nullptr : simulator->find("type");
  if (type == nullptr || !type->is_text()) {
    problems.push_back(missing_type(simulator, path));
    throw_problems(problems);
  }
  plan.type = type->text();
  const ComponentSchema schema = catalog.describe(Simulator::kKind, plan.type);
  plan.id = schema.id.substr(schema.id.find('.') + 1);
  const Resolution found = resolve_options(component_request(*simulator, schema, &catalog), problems);
  throw_problems(problems);
  plan.config = canonical(found.table, plan.type);
  plan.warnings = found.warnings;
  return plan;
}

SimulatorOptions simulator_options(const std::string& config, const ComponentCatalog& catalog) {
  const Config parsed = Config::parse(config, "manifest.json", {});
  const Value* table = parsed.find("simulator");
  const Value* type = table == nullptr ? nullptr : table->find("type");
  if (type == nullptr || !type->is_text()) fail_config("manifest.json: config has no simulator.type");
  Resolution found =
      resolve_options(component_request(*table, catalog.describe(Simulator::kKind, type->text()), &catalog));
  return {type->text(), std::move(found.options)};
}

}  // namespace tenon::simulate
