// tenon fuzz: draws compositions of components and options, and holds each to the identities that apply.
#include "command_line.hpp"
#include "offline_host.hpp"

#include "base/process_facts.hpp"
#include "base/signals.hpp"
#include "config/run_schema.hpp"
#include "fuzz/fuzzer.hpp"
#include "fuzz/space.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

namespace tenon::cli {
namespace {

/// Hidden: the process that judges one composition (fuzz/judging_process.hpp).
constexpr const char* kJudge = "--judge";

void declare_fuzz(po::options_description& options) {
  options.add_options()("count", po::value<std::int64_t>()->default_value(100), "N  compositions");
  options.add_options()("seconds", po::value<double>()->default_value(0),
                        "S  begin none after this much time; 0: no limit");
  options.add_options()("failures", po::value<std::int64_t>()->default_value(0),
                        "N  begin none after so many that failed; 0: no limit");
  options.add_options()("seed", po::value<std::int64_t>()->default_value(1),
                        "K  of all draws: composition I of a seed is always the same");
  options.add_options()("base", po::value<std::string>(),
                        "FILE  vary this run, made short, in place of the small runs of every model");
  options.add_options()("kinds", po::value<std::string>()->default_value(""),
                        "KIND,...  draw components of these kinds only: precision,sync");
  options.add_options()("out", po::value<std::string>()->default_value("fuzz"),
                        "DIR  report.html, and a folder for each case that fails");
  options.add_options()("replay", po::value<std::string>()->default_value(""),
                        "DIR  judge the cases of an earlier --out first");
  options.add_options()("jobs", po::value<int>()->default_value(0),
                        "J  compositions at a time; 0: as many as there are cores");
  options.add_options()("shrink", po::value<double>()->default_value(60),
                        "S  seconds in which a case that fails is made smaller; 0: it is kept as it is");
  options.add_options()("json", "print the report as JSON");
}

/// The user's run with absolute paths, as a file of its own.
std::string resolved_base(const std::string& file, const std::string& folder) {
  Runtime runtime;
  const Config config = load_run(runtime, file, {});
  if (config.find("stage") != nullptr)
    fail_config(
        fmt::format("tenon fuzz: --base {}: a file with stages is no single run; give a file of one", file));
  std::string path = (std::filesystem::absolute(folder) / "base.toml").string();
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  std::ofstream out(path);
  out << to_toml(resolved_config(config).root(), false) << std::flush;
  if (!out) fail_config(fmt::format("tenon fuzz: {} cannot be written; choose another --out", path));
  return path;
}

int run_fuzz(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == kJudge) {
    OfflineHost host;
    return fuzz::judge_request(arguments[1], host);
  }
  const Parsed parsed = parse(kFuzz, {}, arguments);
  if (parsed.helped) return 0;
  fuzz::FuzzRequest request;
  request.count = parsed.values["count"].as<std::int64_t>();
  request.seconds = parsed.values["seconds"].as<double>();
  const auto seed = parsed.values["seed"].as<std::int64_t>();
  request.jobs = parsed.values["jobs"].as<int>();
  if (request.count < 0 || request.count > 1'000'000)
    fail_config(fmt::format("tenon fuzz: --count {}: expected 0 to 1000000 compositions", request.count));
  if (!std::isfinite(request.seconds) || request.seconds < 0)
    fail_config(fmt::format("tenon fuzz: --seconds {}: expected a time of 0 s or more", request.seconds));
  request.failures = parsed.values["failures"].as<std::int64_t>();
  if (request.failures < 0)
    fail_config(fmt::format("tenon fuzz: --failures {}: expected 0 or more", request.failures));
  request.shrink_seconds = parsed.values["shrink"].as<double>();
  if (!std::isfinite(request.shrink_seconds) || request.shrink_seconds < 0)
    fail_config(
        fmt::format("tenon fuzz: --shrink {}: expected a time of 0 s or more", request.shrink_seconds));
  if (seed < 0) fail_config(fmt::format("tenon fuzz: --seed {}: expected 0 or more", seed));
  if (request.jobs < 0 || request.jobs > 1024)
    fail_config(fmt::format("tenon fuzz: --jobs {}: expected 0 to 1024", request.jobs));
  if (request.jobs == 0) request.jobs = std::max(1, usable_cores());
  request.seed = static_cast<std::uint64_t>(seed);
  request.kinds = split_at_commas(parsed.values["kinds"].as<std::string>());
  request.out = parsed.values["out"].as<std::string>();
  request.replay = parsed.values["replay"].as<std::string>();
  if (request.out.empty()) fail_config("tenon fuzz: --out needs the name of a folder");
  request.program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (!request.replay.empty()) fuzz::old_cases(request.replay);  // refused before anything is written
  if (parsed.values.count("base") > 0)
    request.base_file = resolved_base(parsed.values["base"].as<std::string>(), request.out);
  {
    Runtime runtime;
    fuzz::SpaceRequest space{.seed = request.seed, .kinds = request.kinds, .base = {}, .folder = ""};
    std::vector<std::string> paths;
    if (!request.base_file.empty()) paths = config::plugin_paths(Config::load(request.base_file, {}));
    runtime.discover(paths);
    request.components = fuzz::Space(runtime.registry(), std::move(space)).components();
  }
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  request.progress = [terminal](const std::string& line, bool finished) {
    print_progress(terminal, line, finished);
  };
  std::atomic<bool> stopped = false;
  request.stopped = &stopped;
  std::optional<base::StopListener> signals;
  signals.emplace([&](const std::string&, bool) { stopped = true; }, [] {});
  const fuzz::FuzzRun run = fuzz::fuzz(request);
  signals.reset();
  std::cout << (parsed.values.count("json") > 0 ? fuzz::json_report(run) : fuzz::text_report(run));
  for (const fuzz::Judged& judged : run.judged)
    if (judged.verdict.finding) return 1;
  return 0;
}

}  // namespace

const Command kFuzz{
    "fuzz", "[options]",
    "Draw compositions of components and hold each to identities: repetition, resume, transport.", run_fuzz,
    declare_fuzz};

}  // namespace tenon::cli
