// Shared by the step benchmarks: settings of the command line, our rate of a configuration, the rate that a
// peer's script prints, and medians with their spread.
#pragma once

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/runtime.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace tenon::bench {

struct Settings {
  int rounds = 5, steps = 8, threads = 2;
  std::string python = "python3";
  bool json = false;  ///< figures for bench/compare in place of text, and no peers
};

/// Prints one line that bench/compare reads.
inline void print_json(std::initializer_list<std::pair<const char*, double>> figures) {
  const char* separator = "{";
  for (const auto& [name, value] : figures) {
    fmt::print("{}\"{}\": {:.9g}", separator, name, value);
    separator = ", ";
  }
  fmt::print("}}\n");
}

/// [run], [device] and [data] of a short run on text.
inline std::string run_on_text(const Settings& settings, int context, int batch) {
  return fmt::format(R"([run]
name = "bench"
steps = {}
log_every = {}
eval_batches = 1
clip = 1.0
[device]
type = "cpu"
threads = {}
[data]
type = "text"
context = {}
batch = {}
)",
                     settings.steps, std::max(1, settings.steps / 2), settings.threads, context, batch);
}

inline std::filesystem::path run_folder() {
  return std::filesystem::temp_directory_path() / fmt::format("tenon-bench-{}", ::getpid());
}

/// Runs this configuration, with `plugin` beside those found unless it is null.
inline RunResult train(const std::string& config, const tenon_plugin_v1_t* plugin) {
  Runtime runtime;
  if (plugin != nullptr) runtime.add_plugin(*plugin);
  runtime.discover({});
  const auto folder = run_folder();
  TrainRequest request;
  request.run_dir = folder.string();
  request.quiet = true;
  RunResult result = runtime.train(Config::parse(config, "bench.toml", {}), request);
  std::filesystem::remove_all(folder);
  if (!result.error.empty()) fail_run(result.error);
  return result;
}

/// The rate `metric` of a run; its last log line must not include the warm-up.
inline double our_rate(const std::string& config, const std::string& metric,
                       const tenon_plugin_v1_t* plugin) {
  return train(config, plugin).metrics.at(metric);
}

/// The number that a script of this folder prints; negative if it cannot run.
inline double peer_rate(const Settings& settings, const std::string& script, const std::string& arguments) {
  const std::string command =
      fmt::format("{} {}/bench/{} {} 2>/dev/null", settings.python, TENON_SOURCE_DIR, script, arguments);
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return -1;
  std::array<char, 128> line{};
  const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  const double rate = read ? std::atof(line.data()) : -1;
  // A script that still writes when the pipe closes would fail.
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
  }
  return ::pclose(pipe) == 0 ? rate : -1;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// "1.90 (1.85 to 1.97)".
inline std::string spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", values[values.size() / 2], values.front(), values.back());
}

/// Reads --rounds, --steps, --threads, --python and --json and runs; returns the exit status of the program
/// `name`.
inline int run_program(const char* name, int argc, char** argv, Settings settings,
                       const std::function<int(const Settings&)>& run) {
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (option == "--rounds" && value != nullptr)
      settings.rounds = std::atoi(value);
    else if (option == "--steps" && value != nullptr)
      settings.steps = std::atoi(value);
    else if (option == "--threads" && value != nullptr)
      settings.threads = std::atoi(value);
    else if (option == "--python" && value != nullptr)
      settings.python = value;
    else if (option == "--json" && value != nullptr)
      settings.json = std::string(value) == "true";
    else {
      fmt::print(
          stderr,
          "{}: unknown option '{}'; usage: {} [--rounds N] [--steps N] [--threads N] [--python PYTHON]\n",
          name, option, name);
      return 2;
    }
  }
  try {
    return run(settings);
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return error.exit_status();
  }
}

}  // namespace tenon::bench
