// Planning of time_to_plan.hpp.
#include "reproduce/time_to_plan.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace tenon::reproduce {
namespace {

std::string leaf(const Value& root, const std::string& key) {
  const std::map<std::string, std::string> flat = flatten(root);
  const auto found = flat.find(key);
  return found == flat.end() ? "" : found->second;
}

std::string parameters(const ResolvedRun& run) {
  for (const std::string& fact : run.facts)
    if (fact.starts_with("parameters: ")) return fact;
  return "";
}

/// The study as the timing runs of one link see it.
StudyFile timing_study(const StudyFile& study, const TimeToLink& link) {
  StudyFile out = study;
  out.name = fmt::format("{}, timing of link '{}',", study.name, link.name);
  for (StudyArm& arm : out.arms) {
    std::vector<std::string>& set = arm.arm.set;
    set.insert(set.end(), link.set.begin(), link.set.end());
    set.insert(set.end(), study.time_to->timing_set.begin(), study.time_to->timing_set.end());
    set.insert(set.end(), {"run.eval_every=0", "run.eval_batches=1"});
    arm.may_fail = false;
  }
  return out;
}

void require_comparable(const StudyFile& study, const TimeToLink& link, const Plan& runs,
                        const Plan& timing) {
  for (std::size_t a = 0; a < timing.arms.size(); ++a) {
    const std::string who = fmt::format("tenon reproduce: {}: link '{}', arm '{}'", study.path, link.name,
                                        study.arms[a].arm.name);
    const std::string clock = leaf(timing.arms[a].root, "transport.clock.type");
    if (clock != "\"simulated\"") {
      fail_config(
          fmt::format("{}: a timing run needs the simulated clock, found transport.clock.type = {}; say "
                      "transport.clock = {{type = \"simulated\", compute_seconds = ...}} in the link's set",
                      who, clock.empty() ? "absent" : clock));
    }
    const std::string here = parameters(timing.arms[a]), there = parameters(runs.arms[a]);
    if (here != there) {
      fail_config(fmt::format(
          "{}: the timing run has other parameters: expected '{}', found '{}'; keep in timing_set "
          "what decides their shapes, e.g. model.context",
          who, there, here));
    }
  }
}

}  // namespace

std::int64_t timing_seed(const StudyFile& study, const Size& size, const std::string& arm,
                         std::int64_t seed) {
  const std::vector<std::string>& one = study.time_to->one_seed;
  return std::find(one.begin(), one.end(), arm) != one.end() ? size.seeds.front() : seed;
}

std::vector<TimingPlan> make_timing_plans(const StudyFile& study, const Size& size, const Plan& runs,
                                          const ab::RunnerOptions& options, const Resolver& resolve) {
  std::vector<TimingPlan> out;
  for (const TimeToLink& link : study.time_to->links) {
    TimingPlan timing;
    timing.link = link.name;
    timing.folder = (std::filesystem::path(options.folder) / "timing" / link.name).string();
    ab::RunnerOptions runner = options;
    runner.folder = timing.folder;
    timing.plan = make_plan(timing_study(study, link), size, runner, resolve);
    require_comparable(study, link, runs, timing.plan);
    std::erase_if(timing.plan.runs, [&](const PlannedRun& run) {
      return timing_seed(study, size, study.arms[run.job.arm].arm.name, run.job.seed) != run.job.seed;
    });
    out.push_back(std::move(timing));
  }
  return out;
}

void require_lines_at_evaluations(const StudyFile& study, const Plan& runs) {
  for (std::size_t a = 0; a < runs.arms.size(); ++a) {
    const std::string every = leaf(runs.arms[a].root, "run.eval_every");
    const std::string lines = leaf(runs.arms[a].root, "run.log_every");
    if (every.empty() || lines.empty() || std::stoll(every) % std::stoll(lines) == 0) continue;
    fail_config(
        fmt::format("tenon reproduce: {}: arm '{}': time to a loss needs a training line at each evaluation: "
                    "expected run.eval_every to be a multiple of run.log_every, found {} and {}",
                    study.path, study.arms[a].arm.name, every, lines));
  }
}

}  // namespace tenon::reproduce
