// Planning of plan.hpp.
#include "reproduce/plan.hpp"

#include "ab/run_record.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <filesystem>

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

Plan make_plan(const StudyFile& study, const Size& size, const ab::RunnerOptions& options,
               const Resolver& resolve) {
  Plan plan;
  plan.experiment = experiment_of(study, size);
  const ab::Experiment& e = plan.experiment;
  ab::write_arm_files(e, options.folder);
  for (const ab::Arm& arm : e.arms) {
    try {
      plan.arms.push_back(
          resolve(ab::arm_file_path(options.folder, arm), ab::run_sets(e, arm, e.seeds.front())));
    } catch (const Error& error) {
      throw Error(
          error.kind(),
          fmt::format("tenon reproduce: {} at size {} cannot run here, and nothing was started. Arm '{}': {}",
                      study.name, size.name, arm.name, error.what()));
    }
  }
  for (ab::Job& job : ab::plan_jobs(e, options)) {
    Flat wanted = flatten(plan.arms[job.arm].root);
    wanted["run.seed"] = std::to_string(job.seed);
    PlannedRun run;
    run.action = action_for(job.parent, wanted, study.arms[job.arm].may_fail, run.reason);
    run.job = std::move(job);
    if (run.action == Action::kContinue) run.job.command.push_back("--resume");
    plan.runs.push_back(std::move(run));
  }
  return plan;
}

}  // namespace tenon::reproduce
