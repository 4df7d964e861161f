// Planning of plan.hpp. The child that simulates data decides what is left to do there.
#include "reproduce/plan.hpp"

#include "ab/format.hpp"
#include "ab/run_record.hpp"
#include "base/elapsed.hpp"
#include "reproduce/render.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/sdk/simulation.hpp>

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;
using Flat = std::map<std::string, std::string>;

/// The first leaf in which two configurations differ; "" when none does.
std::string first_difference(const Flat& wanted, const Flat& found) {
  const auto text = [](const Flat& flat, const std::string& key) {
    const auto at = flat.find(key);
    return at == flat.end() ? std::string("absent") : at->second;
  };
  Flat keys = wanted;
  keys.insert(found.begin(), found.end());
  for (const auto& [key, value] : keys) {
    const std::string now = text(wanted, key), then = text(found, key);
    if (now != then) return fmt::format("{} is now {}, was {}", key, now, then);
  }
  return "";
}

}  // namespace

Action action_for(const std::string& parent, const Flat& wanted, bool may_fail, std::string& reason) {
  reason.clear();
  const int attempt = ab::newest_attempt(parent);
  if (attempt == 0) return Action::kStart;
  const fs::path folder = fs::path(parent) / std::to_string(attempt);
  if (!fs::exists(folder / "config.resolved.toml")) return Action::kStart;
  try {
    const ab::RunRecord run = ab::read_run(folder.string(), ab::RunState::kAny);
    const std::string difference = first_difference(wanted, run.config);
    if (!difference.empty()) {
      reason = fmt::format("attempt {} is of another configuration: {}", attempt, difference);
      return Action::kStart;
    }
    if (run.status == "completed" || (run.status == "failed" && may_fail)) return Action::kKeep;
    if (run.status == "failed") {
      reason = fmt::format("attempt {} failed", attempt);
      return Action::kStart;
    }
    return Action::kContinue;
  } catch (const Error& error) {
    // A kill can come before the first metric line or the manifest: restarting loses nothing.
    reason = fmt::format("attempt {} cannot be read: {}", attempt, error.what());
    return Action::kStart;
  }
}

Action action_for_stages(const std::string& parent, const std::vector<std::string>& wanted,
                         std::string& reason) {
  reason.clear();
  const int attempt = ab::newest_attempt(parent);
  if (attempt == 0) return Action::kStart;
  const fs::path folder = fs::path(parent) / std::to_string(attempt);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::string name = wanted[i].substr(0, wanted[i].rfind('-'));
    std::error_code none;
    const fs::path link = folder / fmt::format("{:02}-{}", i + 1, name);
    const std::string target = fs::read_symlink(link, none).filename().string();
    if (none) return i == 0 ? Action::kStart : Action::kContinue;  // it ended before this stage began
    if (target == wanted[i]) continue;
    reason = fmt::format("attempt {} is of another configuration: stage {} is another", attempt, name);
    return Action::kStart;
  }
  return ab::run_completed(parent) ? Action::kKeep : Action::kContinue;
}

Plan make_plan(const StudyFile& study, const Size& size, const ab::RunnerOptions& options,
               const Resolver& resolve) {
  Plan plan;
  plan.experiment = experiment_of(study, size);
  const ab::Experiment& e = plan.experiment;
  ab::RunnerOptions naming = options;
  naming.study = fmt::format("tenon reproduce: {} at size {}", study.name, size.name);
  ab::write_arm_files(e, naming);
  for (const ab::Arm& arm : e.arms) {
    try {
      plan.arms.push_back(
          resolve(ab::arm_file_path(options.folder, arm), ab::run_sets(e, arm, e.seeds.front())));
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{} cannot run here, and nothing was started. Arm '{}': {}",
                                            naming.study, arm.name, error.what()));
    }
  }
  for (ab::Job& job : ab::plan_jobs(e, options)) {
    PlannedRun run;
    if (plan.arms[job.arm].stages.empty()) {
      Flat wanted = flatten(plan.arms[job.arm].root);
      wanted["run.seed"] = std::to_string(job.seed);
      run.action = action_for(job.parent, wanted, study.arms[job.arm].may_fail, run.reason);
    } else {
      const ab::Arm& arm = e.arms[job.arm];
      const ResolvedRun here =
          resolve(ab::arm_file_path(options.folder, arm), ab::run_sets(e, arm, job.seed));
      run.action = action_for_stages(job.parent, here.stages, run.reason);
    }
    run.job = std::move(job);
    if (run.action == Action::kContinue) run.job.command.push_back("--resume");
    plan.runs.push_back(std::move(run));
  }
  return plan;
}

namespace {

// The data of a study.

std::string data_folder(const std::string& folder) {
  return (fs::path(folder) / "simulation").string();
}

/// Seconds of all calls so far; continuing must not hide earlier ones.
double seconds_before(const std::string& path) {
  std::ifstream in(path);
  double seconds = 0;
  return in >> seconds ? seconds : 0;
}

std::string quoted(const std::string& text) {
  return Value(text).inline_toml();
}

ab::Job job_of(const StudyFile& study, const Size& size, const std::string& folder,
               const ab::RunnerOptions& runner) {
  ab::Job job;
  job.parent = folder;
  job.log = (fs::path(folder) / "simulation.log").string();
  job.command = {runner.program, "simulate", study.simulation->config, "--quiet"};
  std::vector<std::string> sets = study.simulation->set;
  sets.insert(sets.end(), size.simulate.begin(), size.simulate.end());
  sets.push_back("simulate.folder=" + quoted(data_folder(folder)));
  const Config config = Config::load(study.simulation->config, sets);
  const Value* seed = config.find("simulate.seed");
  job.seed = seed != nullptr ? seed->integer() : 1;
  for (const std::string& set : sets) job.command.insert(job.command.end(), {"--set", set});
  return job;
}

bool complete(FileSystem& files, const std::string& folder) {
  if (!fs::exists(simulation_manifest_path(folder))) return false;
  return read_simulation(files, folder).complete();
}

}  // namespace

bool simulates(const StudyFile& study, const Size& size) {
  return study.simulation && says(study.simulation->sizes, size.name);
}

Size with_simulation(const StudyFile& study, const Size& size, const std::string& folder) {
  Size out = size;
  if (simulates(study, size)) out.set.push_back("data.path=" + quoted(data_folder(folder)));
  return out;
}

std::string simulate_data(const StudyFile& study, const Size& size, const std::string& folder,
                          const ab::RunnerOptions& runner) {
  const auto files = make_posix_files();
  const std::string data = data_folder(folder), clock = (fs::path(folder) / "simulation.seconds").string();
  const bool was_complete = complete(*files, data);

  ab::Experiment experiment;
  experiment.arms.push_back({.name = fs::path(study.simulation->config).stem().string()});
  ab::RunnerOptions options = runner;
  options.label = "reproduce, data:";
  options.jobs = 1;
  const auto begun = std::chrono::steady_clock::now();
  const ab::RunnerResult result = ab::run_planned(experiment, {job_of(study, size, folder, runner)}, options);
  const double took = base::seconds_since(begun);
  const double seconds = seconds_before(clock) + (was_complete ? 0 : took);
  files->write_text_atomically(clock, fmt::format("{}\n", seconds));

  if (!result.failed.empty() && !result.interrupted) {
    fail_run(fmt::format(
        "tenon reproduce: the data of {} at size {} could not be simulated: {}, log in {}\n{}", study.name,
        size.name, result.failed[0].reason, result.failed[0].job.log, result.failed[0].log_tail));
  }
  if (!complete(*files, data)) {
    fail_run(fmt::format("tenon reproduce: the simulation in {} was interrupted; the same command continues",
                         data));
  }
  const SimulationManifest manifest = read_simulation(*files, data);
  return fmt::format("{} (seed {}), {} of {} samples, {} failed, in {}", manifest.simulator, manifest.seed,
                     manifest.finished.size(), manifest.samples, manifest.failed.size(),
                     ab::duration_text(seconds));
}

}  // namespace tenon::reproduce
