// tenon simulate: the samples of a simulation, in parallel, restartable.
#include "command_line.hpp"
#include "simulate/hdf5_export.hpp"
#include "simulate/launched.hpp"
#include "simulate/plan.hpp"
#include "simulate/pool.hpp"
#include "simulate/result_folder.hpp"
#include "simulate/sample_writer.hpp"

#include "base/elapsed.hpp"
#include "base/json_writer.hpp"
#include "base/signals.hpp"
#include "loop/named_component.hpp"
#include "offline_host.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iostream>

namespace tenon::cli {
namespace {

using Steady = std::chrono::steady_clock;
constexpr int kNamedFailures = 5;

void declare_simulate(po::options_description& options) {
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  change one value, e.g. --set simulate.samples=100 (repeatable)");
  options.add_options()("quiet", "no progress line; errors and the final line only");
  options.add_options()("json", "print the figures as JSON");
}

/// A simulator created for its description and its shared arrays; tasks run elsewhere.
class Description {
 public:
  Description(Registry& registry, const simulate::Plan& plan) {
    options_ = simulate::simulator_options(plan.config, registry);
    registry.create_inner(*options_.options, host_);
    simulator_ = registry.create<Simulator>(options_.type, *options_.options, host_);
  }

  SimulationManifest manifest(const simulate::Plan& plan) const {
    SimulationManifest manifest;
    manifest.simulator = plan.id;
    manifest.plugin = std::string(simulator_.ref().plugin);
    manifest.plugin_version = std::string(simulator_.ref().plugin_version);
    manifest.config = plan.config;
    manifest.seed = plan.settings.seed;
    manifest.samples = plan.settings.samples;
    const auto fields = simulator_->fields();
    const auto shared = simulator_->shared();
    manifest.fields.assign(fields.begin(), fields.end());
    manifest.shared.assign(shared.begin(), shared.end());
    if (fields.empty()) fail_plugin(fmt::format("simulator.{} describes no field", plan.id));
    return manifest;
  }

  /// Computed once, read by all workers.
  void share(FileSystem& files, const simulate::ResultFolder& folder, const SimulationManifest& manifest) {
    if (manifest.shared.empty()) return;
    const simulate::ArrayMemory arrays(manifest.shared);
    simulator_->share(manifest.seed, arrays.views());
    simulate::write_arrays(files, simulation_shared_folder(folder.path()), manifest.shared, arrays.views());
  }

 private:
  OfflineHost host_;
  simulate::SimulatorOptions options_;
  train::NamedComponent<Simulator> simulator_;
};

/// Prints lines of progress, at most four a second; if not on a terminal, one every ten seconds.
class ProgressPrinter {
 public:
  ProgressPrinter(const simulate::ResultFolder& folder, SimulationManifest& manifest, bool quiet)
      : manifest_(manifest),
        settled_before_(folder.taken_up() + static_cast<std::int64_t>(manifest.failed.size())),
        quiet_(quiet),
        terminal_(::isatty(STDERR_FILENO) == 1),
        begun_(Steady::now()),
        printed_(begun_) {}

  void print(bool finished) {
    const auto now = Steady::now();
    const auto between = terminal_ ? std::chrono::milliseconds(250) : std::chrono::milliseconds(10000);
    if (quiet_ || (!finished && now - printed_ < between)) return;
    printed_ = now;
    const auto done = static_cast<std::int64_t>(manifest_.finished.size());
    const auto failed = static_cast<std::int64_t>(manifest_.failed.size());
    print_progress(terminal_,
                   simulate::progress_line({.samples = manifest_.samples,
                                            .finished = done,
                                            .failed = failed,
                                            .settled_here = done + failed - settled_before_,
                                            .seconds = base::seconds(now - begun_)}),
                   finished || !terminal_);
  }

 private:
  SimulationManifest& manifest_;
  std::int64_t settled_before_;
  bool quiet_, terminal_;
  Steady::time_point begun_, printed_;
};

void name_failures(const SimulationManifest& manifest) {
  int named = 0;
  for (const auto& [index, task] : manifest.failed) {
    if (named++ == kNamedFailures) {
      std::cerr << fmt::format("tenon simulate: and {} more; manifest.json names all\n",
                               manifest.failed.size() - kNamedFailures);
      return;
    }
    std::cerr << fmt::format("tenon simulate: sample {} failed{}: {}\n", index,
                             task.attempts > 1 ? fmt::format(" {} times", task.attempts) : "", task.cause);
  }
}

void print_json(const simulate::ResultFolder& folder, const SimulationManifest& manifest,
                std::string_view status, const simulate::PoolResult& result, std::int64_t repeated,
                std::int64_t workers) {
  JsonWriter json;
  json.begin_object();
  json.member("folder", folder.path());
  json.member("status", status);
  json.member("samples", manifest.samples);
  json.member("finished", static_cast<std::int64_t>(manifest.finished.size()));
  json.member("failed", static_cast<std::int64_t>(manifest.failed.size()));
  json.member("taken_up", folder.taken_up());
  json.member("repeated", repeated);
  json.member("lost_workers", result.lost_workers);
  json.member("workers", workers);
  json.member("wall_s", result.wall_s);
  json.member("busy_s", result.busy_s);
  json.objects("holes", manifest.failed, [&](const auto& entry) {
    json.member("index", entry.first);
    json.member("kind", entry.second.kind);
    json.member("attempts", entry.second.attempts);
    json.member("cause", entry.second.cause);
  });
  json.end_object();
  std::cout << json.take();
}

simulate::Pool pool_of(simulate::ResultFolder& folder, simulate::Tasks& tasks, const simulate::Plan& plan) {
  return {folder,
          tasks,
          plan.settings,
          {folder.path(), plan.settings.task_timeout_s, plan.plugin_paths},
          std::filesystem::read_symlink("/proc/self/exe").string()};
}

/// Any process of a launch but the first: makes its share and reports to process 0, which prints for all.
int run_node(FileSystem& files, const SimulationManifest& wanted, const simulate::Plan& plan,
             simulate::Place place, const std::atomic<bool>& stop) {
  simulate::OwnerSeen owner(files, plan.settings.folder, place.index);
  owner.wait(wanted);
  simulate::ResultFolder folder(files, plan.settings.folder, wanted, place);
  simulate::Tasks tasks(folder.manifest(), plan.settings.retries, place);
  const simulate::PoolResult result =
      pool_of(folder, tasks, plan).run([&] { return !stop && owner.wants_more(); });
  simulate::tell_end(
      files, folder.path(), place,
      {result.cut_short, result.lost_workers, tasks.repeated(), plan.settings.workers, result.busy_s});
  return 0;
}

int run_simulate(const std::vector<std::string>& arguments) {
  if (simulate::is_worker(arguments)) return simulate::serve(arguments);
  const Parsed parsed = parse(kSimulate, {"config"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("config") == 0)
    fail_config("tenon simulate: which CONFIG? usage: tenon simulate CONFIG [options]");
  std::vector<std::string> sets;
  if (parsed.values.count("set") > 0) sets = parsed.values["set"].as<std::vector<std::string>>();
  const std::string path = parsed.values["config"].as<std::vector<std::string>>()[0];
  const Config config = Config::load(path, sets);
  Runtime runtime;
  runtime.discover(config::plugin_paths(config));
  const simulate::Plan plan = simulate::read_plan(config, runtime.registry(), path);
  for (const std::string& warning : plan.warnings) std::cerr << "tenon simulate: " << warning << "\n";

  Description description(runtime.registry(), plan);
  const auto files = make_posix_files();
  std::atomic<bool> stop{false};
  const base::StopListener signals(
      [&](const std::string& signal, bool typed) {
        stop = true;
        if (typed)
          std::cerr
              << "tenon simulate: " << signal
              << ": the tasks that run are waited for; Ctrl-C again, a second or more from now, ends them\n";
      },
      [] { ::_exit(128 + SIGINT); });  // workers end with this process
  const std::optional<simulate::Place> launched = simulate::launched();
  const simulate::Place place = launched.value_or(simulate::Place{});
  if (place.index > 0) return run_node(*files, description.manifest(plan), plan, place, stop);
  simulate::ResultFolder folder(*files, plan.settings.folder, description.manifest(plan));
  SimulationManifest& manifest = folder.manifest();
  description.share(*files, folder, manifest);
  std::optional<simulate::Owner> owner;
  if (launched) owner.emplace(*files, folder, place);

  const bool quiet = parsed.values.count("quiet") > 0;
  simulate::Tasks tasks(manifest, plan.settings.retries, place);
  ProgressPrinter progress(folder, manifest, quiet);
  simulate::Pool pool = pool_of(folder, tasks, plan);
  const auto between = [&] {
    if (owner) owner->look(false, !stop);
    progress.print(false);
    return !stop;
  };
  const Steady::time_point begun = Steady::now();
  simulate::PoolResult result = pool.run(between);
  simulate::NodeEnd others;
  if (owner) {
    others = owner->wait(between);
    result.wall_s = base::seconds_since(begun);
    result.busy_s += others.busy_s, result.lost_workers += others.lost_workers;
    if (result.cut_short.empty()) result.cut_short = others.cut_short;
  }
  progress.print(true);
  if (plan.settings.hdf5 && !manifest.finished.empty()) simulate::write_hdf5(*files, folder.path(), manifest);

  const bool stopped = result.cut_short == "stopped";
  const bool late = result.cut_short == "timeout_s is over";
  const char* const status = result.cut_short.empty() ? "completed" : late ? "timed out" : "interrupted";
  name_failures(manifest);
  if (parsed.values.count("json") > 0) {
    print_json(folder, manifest, status, result, tasks.repeated() + others.repeated,
               plan.settings.workers + others.workers);
  } else {
    std::cout << fmt::format("{}: {} of {} samples, {} failed, {:.1f} s  ->  {}\n", status,
                             manifest.finished.size(), manifest.samples, manifest.failed.size(),
                             result.wall_s, folder.path());
  }
  if (!result.cut_short.empty() && !stopped) {
    std::cerr << "tenon simulate: " << result.cut_short << "; the same command continues\n";
    return 1;
  }
  if (result.cut_short.empty() && manifest.finished.empty()) {
    std::cerr << "tenon simulate: every sample failed\n";
    return 1;
  }
  return 0;
}

}  // namespace

const Command kSimulate{"simulate", "CONFIG [options]",
                        "Generate data with a simulator, in parallel; the same command continues.",
                        run_simulate, declare_simulate};

}  // namespace tenon::cli
