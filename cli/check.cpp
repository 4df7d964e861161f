// tenon check: resolve and validate a configuration, build the run, print its memory plan; no training.
#include "command_line.hpp"

#include "observe/json_writer.hpp"
#include "report/runs.hpp"

#include <tenon/error.hpp>

#include <iostream>

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

void declare_check(po::options_description& options) {
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value, e.g. --set optimizer.lr=3e-4 (repeatable)");
  options.add_options()("explain", po::value<std::string>(),
                        "KEY  say which file set a value and what it overrode");
  options.add_options()("json", "print facts and the resolved configuration as JSON");
  options.add_options()("print", "print the resolved configuration, every value with its origin");
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
  const Config config = load_run(runtime, path, sets);
  std::vector<std::string> facts;
  const Config resolved = runtime.check(config, &facts);
  if (parsed.values.count("explain") > 0) {
    std::cout << resolved.explain(parsed.values["explain"].as<std::string>()) << "\n";
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
  return 0;
}

}  // namespace

const Command kCheck{"check", "CONFIG [options]", "Resolve and validate a configuration, without training.",
                     run_check, declare_check};

}  // namespace tenon::cli
