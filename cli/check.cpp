// tenon check: resolve and validate a configuration, build the run, print its memory plan; no training. With
// --shapes: totals of the model alone, of which nothing is built.
#include "built_model.hpp"
#include "command_line.hpp"

#include "base/json_writer.hpp"
#include "config/run_schema.hpp"
#include "offline_host.hpp"
#include "report/runs.hpp"
#include "run/initial_state.hpp"
#include "run/stages.hpp"
#include "transform.hpp"
#include "transform/plan.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <utility>

namespace tenon::cli {
namespace {

/// "gradient buckets: 2" is a fact with a name; its lines of detail begin with blanks.
void print_json(const std::string& path, const std::vector<std::string>& facts, const std::string& toml) {
  JsonWriter json;
  json.begin_object();
  json.member("file", path);
  json.member("ok", true);
  json.objects("facts", facts, [&](const std::string& fact) {
    const std::size_t begin = fact.find_first_not_of(' '), colon = fact.find(": ");
    json.member("name", std::string_view(fact).substr(begin, colon - begin));
    json.member("value", colon == std::string::npos ? "" : std::string_view(fact).substr(colon + 2));
  });
  json.objects("config", report::config_lines(toml), [&](const report::ConfigLine& line) {
    json.member("key", line.key);
    json.member("value", line.value);
    json.member("origin", line.origin);
  });
  json.end_object();
  std::cout << json.take();
}

constexpr const char* kThreads = "thread";

/// The transport's type if its ranks are processes, which a launcher would have to start; else "".
std::string process_transport(const Config& config) {
  const Value* type = config.find("transport.type");
  if (type == nullptr || !type->is_text() || type->text() == kThreads) return "";
  return std::getenv("TENON_RANK") == nullptr ? type->text() : "";
}

/// The configuration with ranks as threads, which need the same components and the same memory.
Config as_threads(const Config& config) {
  const Origin origin{"tenon check", 0, 0};
  Value type{std::string(kThreads)};
  type.origin = origin;
  Value transport, root = config.root();
  transport.set("type", std::move(type), origin);
  root.set("transport", std::move(transport), origin);
  return config.with_root(std::move(root));
}

/// Printed before the run, since a transport that ends with its first rank cannot be changed later.
std::string fact_of_deaths(Registry& registry, const std::string& transport) {
  const ComponentRef ref = registry.find("transport/1", transport);
  const bool outlives = (ref.component->capabilities & TENON_CAP_SURVIVES_DEATH) != 0;
  return fmt::format(
      "when a rank dies: {}",
      outlives ? "tenon launch --restarts R starts it again, and the others live on as [recovery] says"
               : fmt::format("the job ends; '{}' cannot go on without a rank. --resume continues from a "
                             "checkpoint; transport.type = \"socket\" outlives deaths",
                             transport));
}

/// The ranks that `tenon check` builds are threads, so it queries what only processes would find.
void require_machine(Registry& registry, config::CheckedRun& checked) {
  config::CheckedComponent* const chosen = checked.component("transport");
  if (chosen == nullptr) return;
  OfflineHost host;
  registry.create_inner(*chosen->options, host);
  const train::NamedComponent<Transport> transport =
      registry.create<Transport>(chosen->type, *chosen->options, host);
  auto* const reaches = static_cast<DeviceTransport*>(transport->query(DeviceTransport::kId));
  if (reaches == nullptr) return;
  if (const std::string lacks = transport.guarded(*reaches)->missing(); !lacks.empty()) fail_config(lacks);
}

using Parameters = std::map<std::string, std::string>;  // "fc1.weight" -> "f32 [64, 10]"

Parameters parameters_of(Registry& registry, const Config& resolved) {
  config::CheckedRun checked = config::check_run(resolved, registry, {});
  Parameters found;
  for (const auto& node : read_model_graph(registry, checked).nodes)
    for (const auto& parameter : node.parameters)
      found.emplace(parameter.name, fmt::format("{} {}", parameter.dtype, parameter.shape));
  return found;
}

/// Whether the graph of a stage can be built before any stage is trained.
bool is_plain(const train::Stage& stage) {
  return !stage.transforms && !stage.reads_others;
}

/// The stage whose weights a stage begins with as they are, if both can be built; else -1.
int plain_source(const std::vector<train::Stage>& stages, const train::Stage& stage) {
  if (stage.begins_with < 0 || !is_plain(stage) || !is_plain(stages[stage.begins_with])) return -1;
  for (const char* const edit : {"init.rename", "init.missing", "init.extra"})
    if (stage.config.find(edit) != nullptr) return -1;
  return stage.begins_with;
}

/// Throws Error(kConfig) that lists what differs, before the stage that comes first is trained.
void require_same_model(const train::Stage& source, const Parameters& there, const train::Stage& stage,
                        const Parameters& here) {
  std::vector<std::string> missing, extra, differing;
  for (const auto& [name, form] : here) {
    const auto other = there.find(name);
    if (other == there.end())
      missing.push_back(name);
    else if (other->second != form)
      differing.push_back(fmt::format("{} is {} there and {} here", name, other->second, form));
  }
  for (const auto& entry : there)
    if (here.count(entry.first) == 0) extra.push_back(entry.first);
  const std::string list = train::misfits(missing, extra, differing);
  if (list.empty()) return;
  fail_config(
      fmt::format("{}: stage \"{}\" begins with the weights of \"{}\": {}\n"
                  "give it init = \"draw\", or rename, missing or extra in [init]",
                  stage.origin.text(), stage.name, source.name, list));
}

/// Every stage, as far as it can be checked before the others are trained.
int check_stages(Runtime& runtime, const Config& config, const std::string& path,
                 const po::variables_map& values) {
  if (values.count("explain") > 0 || values.count("json") > 0)
    fail_config("tenon check: --explain and --json are for one run, and this file has stages; use --print");
  const std::vector<train::Stage> stages = train::read_stages(config);
  std::string text = path + ": ok\n";
  std::vector<Config> all;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    std::vector<std::string> facts;
    const Config& resolved =
        all.emplace_back(train::check_stage(runtime, stages, static_cast<int>(i), &facts));
    if (const int source = plain_source(stages, stages[i]); source >= 0)
      require_same_model(stages[source], parameters_of(runtime.registry(), all[source]), stages[i],
                         parameters_of(runtime.registry(), resolved));
    text += fmt::format("stage {} of {}: {}\n", i + 1, stages.size(), stages[i].name);
    if (values.count("print") > 0) text += to_toml(resolved.root(), true);
    if (values.count("print") > 0) continue;
    for (const std::string& fact : facts) text += "  " + fact + "\n";
  }
  std::cout << text;
  return 0;
}

void declare_check(po::options_description& options) {
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value, e.g. --set optimizer.lr=3e-4 (repeatable)");
  options.add_options()(
      "explain", po::value<std::string>()->implicit_value(""),
      "KEY  say which file set a value and what it overrode; without KEY: every value that a "
      "change of type dropped");
  declare_verify(options);
  options.add_options()("json", "print facts and the resolved configuration as JSON");
  options.add_options()("print", "print the resolved configuration, every value with its origin");
  options.add_options()(
      "shapes",
      "parameters, bytes of keys and values and FLOPs per token of a language model by its shapes; "
      "reads [model] alone and allocates nothing");
}

/// Totals of [model], however large: the file need not be a whole run.
int print_shapes(Runtime& runtime, const Parsed& parsed, const std::string& path, const Config& config) {
  if (parsed.values.count("explain") > 0 || parsed.values.count("print") > 0)
    fail_config("tenon check: --shapes goes with --json alone; leave --explain and --print out");
  const report::ModelShapes shapes = model_shapes(runtime.registry(), config);
  if (parsed.values.count("json") > 0) {
    std::cout << report::shapes_json(shapes);
  } else {
    std::cout << path << ": ok\n" << report::shapes_text(shapes);
  }
  return 0;
}

int run_check(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kCheck, {"config"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("config") == 0)
    fail_config("tenon check: which CONFIG? usage: tenon check CONFIG [options]");

  Runtime runtime;
  std::vector<std::string> sets;
  if (parsed.values.count("set") > 0) sets = parsed.values["set"].as<std::vector<std::string>>();
  const std::string path = parsed.values["config"].as<std::vector<std::string>>()[0];
  if (const Config file = Config::load(path, sets); transform::is_transform(file)) {
    for (const char* option : {"explain", "json", "print"}) {
      if (parsed.values.count(option) > 0)
        fail_config(fmt::format("tenon check: --{} is for runs, and {} is a transform", option, path));
    }
    check_transform(runtime, file, path);
    return 0;
  }
  const Config config = load_run(runtime, path, sets);
  if (parsed.values.count("shapes") > 0) return print_shapes(runtime, parsed, path, config);
  if (config.find("stage") != nullptr) return check_stages(runtime, config, path, parsed.values);
  std::vector<std::string> facts;
  const std::string processes = process_transport(config);
  Config resolved = runtime.check(processes.empty() ? config : as_threads(config), &facts);
  if (!processes.empty()) {
    facts.push_back(fact_of_deaths(runtime.registry(), processes));
    config::CheckedRun checked = config::check_run(config, runtime.registry(), {});
    require_machine(runtime.registry(), checked);
    resolved = std::move(checked.resolved);
  }
  if (parsed.values.count("explain") > 0) {
    const std::string key = parsed.values["explain"].as<std::string>();
    if (!key.empty()) {
      std::cout << resolved.explain(key);
      return 0;
    }
    const std::vector<std::string> dropped = resolved.dropped_lines(false);
    for (const std::string& line : dropped) std::cout << line << "\n";
    if (dropped.empty()) std::cout << "no change of a type dropped a value\n";
    return 0;
  }
  if (parsed.values.count("print") > 0) {
    std::cout << to_toml(resolved.root(), true);
    return 0;
  }
  if (parsed.values.count("json") > 0) {
    print_json(path, facts, to_toml(resolved.root(), true));
    return 0;
  }
  std::cout << path << ": ok\n";
  for (const std::string& fact : facts) std::cout << fact << "\n";
  for (const std::string& line : resolved.dropped_lines(true)) std::cout << "note: " << line << "\n";
  return 0;
}

}  // namespace

const Command kCheck{"check", "CONFIG [options]", "Resolve and validate a configuration, without training.",
                     run_check, declare_check};

}  // namespace tenon::cli
