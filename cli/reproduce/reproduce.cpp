// The course of a study; see reproduce.hpp.
#include "reproduce/reproduce.hpp"

#include "ab/format.hpp"
#include "base/read_file.hpp"
#include "reproduce/map_render.hpp"
#include "reproduce/plan.hpp"
#include "reproduce/recovery_render.hpp"
#include "reproduce/render.hpp"
#include "reproduce/scaling_points.hpp"
#include "reproduce/scaling_render.hpp"
#include "reproduce/slabs_render.hpp"
#include "reproduce/slabs_runs.hpp"
#include "reproduce/time_to_plan.hpp"
#include "reproduce/time_to_render.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "study.txt";

/// One folder holds one study at one size: a table of quick runs must never replace a real one.
void claim(const fs::path& folder, const StudyFile& study, const Size& size) {
  const std::string mine = fmt::format("study {} at size {}\n", study.name, size.name);
  if (std::optional<std::string> other = base::read_file(folder / kMark)) {
    if (*other == mine) return;
    while (other->ends_with('\n')) other->pop_back();
    fail_config(fmt::format("tenon reproduce: {} holds {}, not {}; choose another folder with --out",
                            folder.string(), *other, mine.substr(0, mine.size() - 1)));
  }
  const auto files = make_posix_files();
  write_text_atomically(*files, (folder / kMark).string(), mine);
}

void announce(const Plan& plan, const Outcome& outcome, const Request& request) {
  if (!request.progress) return;
  for (const PlannedRun& run : plan.runs) {
    if (run.reason.empty()) continue;
    request.progress(fmt::format("reproduce: {} seed {} starts again: {}",
                                 plan.experiment.arms[run.job.arm].name, run.job.seed, run.reason),
                     true);
  }
  request.progress(fmt::format("reproduce: {} runs kept, {} to continue, {} to start", outcome.kept,
                               outcome.continued, outcome.started),
                   true);
}

/// The remaining jobs, counted in `out`.
std::vector<ab::Job> jobs_of(const Plan& plan, Outcome& out) {
  std::vector<ab::Job> jobs;
  for (const PlannedRun& run : plan.runs) {
    ++(run.action == Action::kKeep       ? out.kept
       : run.action == Action::kContinue ? out.continued
                                         : out.started);
    if (run.action != Action::kKeep) jobs.push_back(run.job);
  }
  return jobs;
}

/// Logs of failures, except those of arms that may fail. Paths are relative to the study's folder, so that a
/// table can be published.
std::vector<std::string> logs_of(const std::vector<ab::FailedJob>& failed, const StudyFile& study,
                                 const Plan& plan, const std::string& folder) {
  std::vector<std::string> out;
  for (const ab::FailedJob& f : failed) {
    if (study.arms[f.job.arm].may_fail) continue;
    std::string text = fmt::format("{} seed {}: {}, log in {}", plan.experiment.arms[f.job.arm].name,
                                   f.job.seed, f.reason, f.job.log);
    const std::size_t last = f.log_tail.rfind('\n');
    if (!f.log_tail.empty()) text += ": " + f.log_tail.substr(last == std::string::npos ? 0 : last + 1);
    for (std::size_t at = text.find(folder + "/"); at != std::string::npos; at = text.find(folder + "/", at))
      text.erase(at, folder.size() + 1);
    out.push_back(std::move(text));
  }
  return out;
}

/// Whether the run must have the machine alone: it is under the wall clock.
bool runs_alone(const StudyFile& study, const ab::Job& job) {
  return study.slabs || (study.scaling && study.scaling->is_measured(study.arms[job.arm].of));
}

/// The arms as runs, where a study derives several from one.
StudyFile as_runs(const StudyFile& given, const Size& size, const std::string& folder) {
  if (!given.slabs) return at_points(given, size);
  const std::string data = (fs::path(folder) / "data").lexically_normal().string();
  const auto files = make_posix_files();
  write_fields(*files, given, size, data);
  return at_slabs(given, size, data);
}

Outcome simulate_all(const StudyFile& study, const Size& size, const ab::RunnerOptions& runner,
                     const Request& request) {
  MapPlan plan = plan_map(study, size, runner, request.check_simulation);
  Outcome out;
  out.started = plan.jobs.size();
  out.kept = plan.runs.size() - plan.jobs.size();
  if (request.progress) {
    for (const MapRun& run : plan.runs) {
      if (!run.reason.empty())
        request.progress(fmt::format("reproduce: {} by {} workers, seed {} starts again: {}",
                                     study.arms[run.arm].arm.name, run.workers, run.seed, run.reason),
                         true);
    }
    request.progress(fmt::format("reproduce: {} runs kept, {} to start", out.kept, out.started), true);
  }
  if (!plan.jobs.empty()) out.runs = ab::run_planned(plan.experiment, std::move(plan.jobs), runner);
  out.result.study = study;
  out.result.size = size;
  read_map_results(out.result, plan.runs);
  return out;
}

void write_pages(Outcome& out, const fs::path& folder, const Request& request) {
  out.result.provenance.command = request.command;
  out.result.provenance.jobs = request.jobs;
  out.markdown_path = (folder / "table.md").string();
  out.json_path = (folder / "table.json").string();
  out.figure_path = (folder / "figure.svg").string();
  const auto files = make_posix_files();
  write_text_atomically(*files, out.figure_path, figure_svg(out.result));
  write_text_atomically(*files, out.json_path, table_json(out.result));
  write_text_atomically(*files, out.markdown_path, table_markdown(out.result));
  out.exit_status = out.result.complete && !out.runs.interrupted ? 0 : 1;
}

}  // namespace

Outcome reproduce(const StudyFile& given, const Size& given_size, const Request& request) {
  const fs::path folder = fs::absolute(request.folder).lexically_normal();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_config(fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
  claim(folder, given, given_size);
  const Size size = with_simulation(given, given_size, request.folder);

  ab::RunnerOptions runner;
  runner.program = request.program;
  runner.folder = folder.string();
  runner.jobs = request.jobs;
  runner.progress = request.progress;
  runner.label = "reproduce";
  if (given.map) {
    Outcome out = simulate_all(given, size, runner, request);
    write_pages(out, folder, request);
    return out;
  }
  const StudyFile study = as_runs(given, size, request.folder);
  // Before the plan, which opens the data of every arm.
  const std::string simulation =
      simulates(study, size) ? simulate_data(study, size, request.folder, runner) : "";
  const Plan plan = make_plan(study, size, runner, request.resolve);
  if (study.slabs) require_closed_forms(given, size, plan);
  std::vector<TimingPlan> timings;
  if (study.time_to) {
    require_lines_at_evaluations(study, plan);
    timings = make_timing_plans(study, size, plan, runner, request.resolve);
  }

  Outcome out;
  std::vector<ab::Job> jobs = jobs_of(plan, out);
  const auto alone = std::stable_partition(jobs.begin(), jobs.end(),
                                           [&](const ab::Job& job) { return !runs_alone(study, job); });
  std::vector<ab::Job> measured(alone, jobs.end());  // under the wall clock: they need the machine alone
  jobs.erase(alone, jobs.end());
  std::vector<std::vector<ab::Job>> timing_jobs;
  for (const TimingPlan& timing : timings) timing_jobs.push_back(jobs_of(timing.plan, out));
  announce(plan, out, request);
  if (!jobs.empty()) out.runs = ab::run_planned(plan.experiment, std::move(jobs), runner);
  if (!measured.empty() && !out.runs.interrupted) {
    runner.jobs = 1;
    join(out.runs, ab::run_planned(plan.experiment, std::move(measured), runner));
  }
  runner.jobs = request.jobs;
  for (std::size_t i = 0; i < timings.size() && !out.runs.interrupted; ++i) {
    if (timing_jobs[i].empty()) continue;
    runner.folder = timings[i].folder;
    runner.label = fmt::format("reproduce, timing {}:", timings[i].link);
    join(out.runs, ab::run_planned(timings[i].plan.experiment, std::move(timing_jobs[i]), runner));
  }

  out.result = read_results(study, size, plan, folder.string());
  if (study.time_to) read_time_to_results(out.result, folder.string());
  if (study.slabs) read_slab_results(out.result, plan);
  if (study.recovery) read_recovery_results(out.result);
  out.result.provenance.simulation = simulation;
  read_columns(out.result, request.evaluate);
  read_agreements(out.result);
  read_verdicts(out.result, plan.experiment);
  for (std::string& line : logs_of(out.runs.failed, study, plan, folder.string()))
    out.result.warnings.push_back(std::move(line));
  write_pages(out, folder, request);
  return out;
}

std::string closing_text(const Outcome& outcome) {
  const StudyResult& r = outcome.result;
  std::string out;
  for (const std::string& warning : r.warnings) out += "  ! " + warning + "\n";
  if (r.study.scaling) out += scaling_text(r);
  if (r.slabs) out += slab_text(r);
  if (r.map) out += map_text(r);
  if (r.recovery) out += recovery_text(r);
  const bool of_losses = !r.study.scaling && !r.slabs && !r.map && !r.recovery;
  for (std::size_t a = 0; a < r.arms.size() && of_losses; ++a) {
    const ArmResult& arm = r.arms[a];
    std::string line = fmt::format("  {:<24}", r.study.arms[a].arm.name);
    line += arm.value ? fmt::format("{} {}", r.study.metric, ab::fixed(arm.value->mean, 4))
                      : std::string("no value");
    if (arm.gap) line += fmt::format(", gap {} %", ab::fixed_signed(arm.gap->mean, 2));
    if (arm.gap && arm.gap->n > 1)
      line += fmt::format(" ({} to {})", ab::fixed_signed(arm.gap->interval.low, 2),
                          ab::fixed_signed(arm.gap->interval.high, 2));
    for (const Share& share : arm.shares) {
      if (share.percent) line += fmt::format(", {} {} %", share.metric, ab::fixed(*share.percent, 2));
    }
    out += line + "\n";
  }
  if (r.time_to) out += time_to_lines(r);
  out += comparisons_text(r);
  if (of_losses) out += "  gap: per cent of the baseline's " + r.study.metric + "; negative = worse\n";
  if (outcome.runs.interrupted) out += "interrupted: the same command continues where it stopped\n";
  if (!caution(r.size).empty()) out += caution(r.size) + "\n";
  return out + outcome.markdown_path + "\n";
}

}  // namespace tenon::reproduce
