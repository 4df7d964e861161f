#include "command_line.hpp"

#include "ab/runner.hpp"
#include "base/digest_cache.hpp"
#include "config/run_schema.hpp"
#include "config/words.hpp"
#include "run/stages.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>

namespace tenon::cli {
namespace {

po::options_description options_of(const Command& command) {
  po::options_description options;
  if (command.declare != nullptr) command.declare(options);
  options.add_options()("help,h", "show this help");
  return options;
}

}  // namespace

std::vector<OptionText> option_texts(const Command& command) {
  std::vector<OptionText> texts;
  const po::options_description options = options_of(command);
  for (const auto& option : options.options()) {
    const std::string& text = option->description();
    const auto cut = text.find("  ");
    const bool argument = cut != std::string::npos;
    texts.push_back(
        {option->long_name(), argument ? text.substr(0, cut) : "", argument ? text.substr(cut + 2) : text});
  }
  return texts;
}

Parsed parse(const Command& command, const std::vector<std::string>& positional,
             const std::vector<std::string>& arguments) {
  const po::options_description visible = options_of(command);
  po::options_description hidden;
  po::positional_options_description words;
  for (const std::string& name : positional) {
    const bool list = name.ends_with("...");
    const std::string plain = list ? name.substr(0, name.size() - 3) : name;
    hidden.add_options()(plain.c_str(), po::value<std::vector<std::string>>(), "");
    words.add(plain.c_str(), list ? -1 : 1);
  }
  po::options_description all;
  all.add(visible).add(hidden);
  Parsed parsed;
  try {
    namespace style = po::command_line_style;
    const int no_guessing = style::unix_style & ~style::allow_guessing;
    po::store(po::command_line_parser(arguments).options(all).positional(words).style(no_guessing).run(),
              parsed.values);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names;
    for (const auto& option : visible.options()) names.push_back("--" + option->long_name());
    fail_config(fmt::format("tenon {}: there is no option '{}'{} (see: tenon {} --help)", command.name,
                            error.get_option_name(), config::suggestion(error.get_option_name(), names),
                            command.name));
  } catch (const po::too_many_positional_options_error&) {
    fail_config(fmt::format("tenon {}: too many words; usage: tenon {} {}", command.name, command.name,
                            command.synopsis));
  } catch (const po::error& error) {
    fail_config(fmt::format("tenon {}: {} (see: tenon {} --help)", command.name, error.what(), command.name));
  }
  if (parsed.values.count("verify") > 0) base::DigestCache::of_user().verify();
  if (parsed.values.count("help") > 0) {
    std::cout << "Usage: tenon " << command.name << " " << command.synopsis << "\n\n"
              << command.summary << "\n\nOptions:\n";
    for (const OptionText& option : option_texts(command)) {
      const std::string name = "--" + option.name + (option.argument.empty() ? "" : " " + option.argument);
      std::cout << fmt::format("  {:<18} {}\n", name, option.text);
    }
    parsed.helped = true;
  }
  return parsed;
}

namespace {

Config append_observer(const Config& config, const std::string& type, const Origin& origin) {
  Value observer;
  Value name(type);
  name.origin = origin;
  observer.set("type", std::move(name), origin);
  Value root = config.root();
  Value::Array all;
  if (const Value* present = root.find("observe")) all = present->array();
  all.push_back(std::move(observer));
  root.set("observe", Value(std::move(all)), origin);
  return config.with_root(std::move(root));
}

/// Users who did not choose observers want to see progress.
Config with_default_observer(Config config, Runtime& runtime) {
  const auto offered = runtime.registry().ids("observer/1");
  const bool chosen = config.find("observe") != nullptr;
  if (chosen || std::find(offered.begin(), offered.end(), "progress") == offered.end()) return config;
  return append_observer(config, "progress", {"default", 0, 0});
}

}  // namespace

void declare_verify(po::options_description& options) {
  options.add_options()(
      "verify", "compute all digests of plugins and data, and fail where the cache of digests differs");
}

Config load_run(Runtime& runtime, const std::string& path, const std::vector<std::string>& sets) {
  Config config = Config::load(path, sets);
  if (config.find("run.name") == nullptr) {
    Value root = config.root();
    if (root.find("run") == nullptr) root.set("run", Value(), {});
    root.find("run")->set("name", Value(std::filesystem::path(path).stem().string()), {"default", 0, 0});
    config = config.with_root(std::move(root));
  }
  runtime.discover(config::plugin_paths(config));
  return with_default_observer(std::move(config), runtime);
}

Config resolved_config(const Config& config) {
  Runtime runtime;
  runtime.discover(config::plugin_paths(config));
  const std::vector<train::Stage> stages = train::read_stages(config);
  if (stages.empty()) return runtime.check(config, nullptr);
  // The file as it is, with the paths that its stages resolve.
  Value root = config.root();
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const Value resolved = train::check_stage(runtime, stages, static_cast<int>(i), nullptr).root();
    ab::take_paths(root, resolved);
    if (Value* const at = root.find("at"))
      if (Value* const own = at->find(stages[i].name)) ab::take_paths(*own, resolved);
    Value& table = root.find("stage")->array()[i];
    if (Value* const extends = table.find("extends")) {
      for (Value& file : extends->array()) {
        Value absolute(resolve_path(file.text(), table.origin));
        absolute.origin = file.origin;
        file = std::move(absolute);
      }
    }
  }
  return config.with_root(std::move(root));
}

Config with_observer(const Config& config, const std::string& type) {
  if (const Value* observers = config.find("observe")) {
    for (const Value& observer : observers->array()) {
      const Value* name = observer.find("type");
      if (name != nullptr && name->is_text() && name->text() == type) return config;
    }
  }
  return append_observer(config, type, {"command line", 0, 0});
}

void print_progress(bool terminal, const std::string& line, bool finished) {
  if (terminal) {
    std::cerr << "\r\033[K" << line << (finished ? "\n" : "") << std::flush;
  } else if (finished) {
    std::cerr << line << "\n";
  }
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string quoted_command_line(const std::vector<std::string>& arguments) {
  std::string line = "tenon";
  for (const std::string& argument : arguments) {
    const bool plain =
        !argument.empty() && argument.find_first_of(" \t\n'\"\\$`*?[]{}()<>|&;#~") == std::string::npos;
    std::string quoted;
    for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += " " + (plain ? argument : "'" + quoted + "'");
  }
  return line;
}

std::span<const Command* const> commands() {
  static constexpr std::array kAll{
      &kTrain,       &kLaunch,      &kAb,       &kCheck,    &kGraph,     &kInspect,   &kDoctor,
      &kConformance, &kNewPlugin,   &kReport,   &kCompare,  &kReplay,    &kEvaluate,  &kExport,
      &kImport,      &kExportStudy, &kQuantize, &kGenerate, &kTokenize,  &kTransform, &kSimulate,
      &kPower,       &kReproduce,   &kFuzz,     &kManual,   &kCompletion};
  return kAll;
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command* command : commands()) {
    if (name == command->name) return *command;
    names.emplace_back(command->name);
  }
  fail_config(
      fmt::format("there is no command '{}'{} (see: tenon --help)", name, config::suggestion(name, names)));
}

}  // namespace tenon::cli
