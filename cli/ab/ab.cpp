// The course of a study; see ab.hpp.
#include "ab/ab.hpp"

#include "ab/csv.hpp"
#include "ab/factorial.hpp"
#include "ab/family.hpp"
#include "ab/kept_runs.hpp"
#include "ab/look_record.hpp"
#include "ab/race.hpp"
#include "ab/tune_stage.hpp"
#include "base/file_descriptor.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;

// Writes a temporary file and renames it: a reader never sees half a report.
void write_file(const fs::path& path, const std::string& text) {
  const fs::path draft = path.string() + ".tmp";
  {
    std::ofstream out(draft, std::ios::binary | std::ios::trunc);
    out << text;
    if (!out.flush())
      fail_run(fmt::format("cannot write {}; is the disk full or the folder read-only?", draft.string()));
  }
  std::error_code error;
  fs::rename(draft, path, error);
  if (error)
    fail_run(fmt::format("cannot rename {} to {}: {}", draft.string(), path.string(), error.message()));
}

enum class Answering { kNone, kRecord, kRepeat };

/// `answering`: what becomes of the verdict of a study in a family.
StudyOutcome report_on(Study study, Answering answering = Answering::kNone) {
  StudyOutcome out;
  const fs::path folder = study.folder;
  out.result = analyse(std::move(study));
  // Before the reports: after a crash between them the verdict is repeated, not made again.
  if (answering == Answering::kRecord && !out.result.comparisons.empty()) record_answer(out.result);
  if (answering == Answering::kRepeat) check_repeated(out.result);
  out.report_json_path = (folder / "report.json").string();
  out.report_html_path = (folder / "report.html").string();
  write_file(out.report_json_path, report_json(out.result));
  const std::vector<CsvFile> tables = csv_files(out.result);
  if (!tables.empty()) fs::create_directories(folder / "csv");
  for (const CsvFile& file : tables) write_file(folder / "csv" / file.name, file.text);
  write_file(out.report_html_path, report_html(out.result));
  out.exit_status = out.result.comparisons.empty() ? 1 : 0;
  return out;
}

void check_options(const Experiment& experiment, const StudyOptions& options) {
  if (!experiment.factors.empty() && options.self_check) {
    fail_config(fmt::format(
        "{}: --aa compares one arm with itself, and [[factor]] has no arm of its own to name; write an "
        "experiment with an [[arm]] of that configuration, and use --aa on it",
        experiment.path.empty() ? experiment.name : experiment.path));
  }
  if (experiment.tune && options.self_check) {
    fail_config(
        "--aa compares an arm with itself, and [tune] could give its copies different settings; "
        "use one of them");
  }
  if (options.self_check && !options.family.empty()) {
    fail_config("--aa asks nothing about the arms, so it has no place in a family; leave out --family");
  }
  if (experiment.ladder && !options.family.empty()) {
    fail_config(
        "a [ladder] asks one question per point and another of the line, so it has no place in a family; "
        "leave out --family");
  }
  if (!experiment.sequential) {
    if (options.restart && options.family.empty())
      fail_config(
          "--restart is for experiments with [sequential]; without it, runs are made anew in any case");
    return;
  }
  if (options.self_check) {
    fail_config(
        "--aa counts how often the rule for a fixed number of pairs errs, and [sequential] is another rule; "
        "use one of them");
  }
}

/// Adds the results of `more` to `runs`.
void add(RunnerResult& runs, RunnerResult more) {
  runs.completed += more.completed;
  runs.interrupted |= more.interrupted;
  for (FailedJob& failed : more.failed) runs.failed.push_back(std::move(failed));
}

/// Makes the runs of a study and reads them.
Study made_study(const Experiment& asked, const StudyOptions& options, const RunnerOptions& runner,
                 std::optional<LookRecord>& looks, RunnerResult& runs) {
  if (!looks) {
    // A question of a family has one set of runs: with those that are there made anew, it would be asked
    // twice for one share of alpha.
    if (options.keep_finished || asked.family) {
      write_arm_files(asked, runner);
      runs = run_planned(asked, missing_jobs(asked, runner), runner);
    } else {
      runs = run_jobs(asked, runner);
    }
    return load_study(asked, runner.folder, options.jobs, options.self_check);
  }
  write_arm_files(asked, runner);
  RaceOptions race{.runner = runner, .jobs = options.jobs};
  race.make = [&](std::vector<Job> jobs) {
    add(runs, run_planned(asked, std::move(jobs), runner));
    return runs.failed.empty() && !runs.interrupted;
  };
  if (options.progress) race.looked = [&](const std::string& line) { options.progress(line, true); };
  return run_race(asked, *looks, race).study;
}

/// The study of an experiment whose tuning ended without a setting for each arm: it has no runs.
Study untuned_study(const Experiment& asked, const std::string& folder, int jobs) {
  Study study;
  study.experiment = asked;
  study.experiment.seeds.clear();
  study.folder = folder;
  study.jobs = jobs;
  for (const Arm& arm : asked.arms) study.arms.push_back({arm, {}});
  return study;
}

/// The runs of the verdict that are there.
Study stored_study(const Experiment& experiment, const std::string& folder, const StudyRecord& record) {
  if (!experiment.sequential) return load_study(experiment, folder, record.jobs, record.self_check);
  LookRecord looks = LookRecord::read(folder);
  RaceOptions race{.runner = {.program = "", .folder = folder}, .jobs = record.jobs};
  race.make = [](const std::vector<Job>&) { return false; };
  return run_race(experiment, looks, race).study;
}

/// Gives the study what its tuning says.
void add_tuning(Study& study, std::optional<Tuning> tuning) {
  if (!tuning) return;
  study.refusals.insert(study.refusals.end(), tuning->refusals.begin(), tuning->refusals.end());
  for (const std::string& arm : tuning->dropped)
    study.notes.push_back(fmt::format("Not in the study is arm {}", arm));
  study.tuning = std::move(tuning);
}

/// Makes and reads the runs of the verdict, after those of a tuning.
Study tuned_study(const Experiment& asked, const StudyOptions& options, const RunnerOptions& runner,
                  std::optional<LookRecord>& looks, RunnerResult& runs) {
  if (!asked.tune) return made_study(asked, options, runner, looks, runs);
  write_arm_files(asked, runner);
  RunnerResult trials;
  Tuning tuning = tune(asked, runner, trials);
  Study study;
  if (trials.interrupted) {
    runs.interrupted = true;
    tuning.refusals.clear();
    study = untuned_study(asked, runner.folder, options.jobs);
  } else if (!tuning.refusals.empty()) {
    study = untuned_study(asked, runner.folder, options.jobs);
  } else {
    study = made_study(tuned_experiment(asked, tuning), options, runner, looks, runs);
  }
  add_tuning(study, std::move(tuning));
  return study;
}

FamilyRequest family_request(const StudyOptions& options, const std::string& folder,
                             const std::string& digest) {
  FamilyRequest out{
      .family = options.family, .folder = folder, .digest = digest, .restart = options.restart, .say = {}};
  if (options.progress) out.say = [&options](const std::string& line) { options.progress(line, true); };
  return out;
}

/// Reads what there is and reports on it.
StudyOutcome report_stored(const std::string& folder, Answering answering) {
  const fs::path path = fs::path(folder) / kStudyRecord;
  const std::optional<std::string> text = base::read_file(path);
  if (!text) fail_config(fmt::format("{} holds no study: {} cannot be read", folder, path.string()));
  const StudyRecord record = parse_study_record(*text, path.string());
  if (record.experiment.ladder) return report_ladder(record.experiment, folder, record.jobs);
  if (!record.experiment.tune) return report_on(stored_study(record.experiment, folder, record), answering);
  Tuning tuning = stored_tuning(record.experiment, folder);
  Study study = tuning.refusals.empty()
                    ? stored_study(tuned_experiment(record.experiment, tuning), folder, record)
                    : untuned_study(record.experiment, folder, record.jobs);
  add_tuning(study, std::move(tuning));
  return report_on(std::move(study), answering);
}

}  // namespace

StudyOutcome run_study(const Experiment& experiment, const StudyOptions& options) {
  check_options(experiment, options);
  Experiment asked = options.self_check ? against_itself(experiment) : experiment;
  validate(asked);
  if (experiment.ladder) return run_ladder(experiment, options);
  const std::string folder = fs::absolute(options.folder).lexically_normal().string();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_config(fmt::format("cannot make the folder {}: {}", folder, error.message()));
  const FileLock lock = lock_study(folder);
  std::optional<LookRecord> looks;
  const std::string digest = asked.sequential || !options.family.empty() ? plan_digest(asked) : "";
  const auto begin_looks = [&] {  // refuses before anything is overwritten
    if (asked.sequential) looks = LookRecord::begin(folder, digest);
  };
  if (!options.restart) begin_looks();
  if (options.family.empty()) {
    if (!options.restart) refuse_outside_family(folder);
  } else if (enter_family(asked, family_request(options, folder, digest))) {
    return report_stored(folder, Answering::kRepeat);
  }
  if (options.restart) {
    put_aside(folder);
    begin_looks();
  }
  write_file(fs::path(folder) / kStudyRecord, study_record_json({asked, options.jobs, options.self_check}));

  RunnerOptions runner;
  runner.program = options.program;
  runner.folder = folder;
  runner.jobs = options.jobs;
  runner.progress = options.progress;
  runner.resolve = options.resolve;
  if (options.progress) {
    for (const std::string& warning : fixed_seed_warnings(asked)) options.progress(warning, true);
  }
  RunnerResult runs;
  Study study = tuned_study(asked, options, runner, looks, runs);
  for (const FailedJob& f : runs.failed) {
    // A factorial study goes on without the seeds of runs that failed.
    if (std::any_of(study.left_out.begin(), study.left_out.end(),
                    [&](const LeftOutSeed& seed) { return seed.seed == f.job.seed; }))
      continue;
    study.refusals.push_back(fmt::format("arm '{}', seed {}: the run failed ({}), see {}",
                                         study.experiment.arms[f.job.arm].name, f.job.seed, f.reason,
                                         f.job.log));
  }
  if (runs.interrupted) study.refusals.push_back("the study was interrupted");
  StudyOutcome out = report_on(std::move(study), asked.family ? Answering::kRecord : Answering::kNone);
  out.runs = std::move(runs);
  return out;
}

FileLock lock_study(const std::string& folder) {
  constexpr std::chrono::milliseconds kPatience{500};
  return {(fs::path(folder) / "study.lock").string(), kPatience, [&](int holder) {
            return fmt::format(
                "{} works on the study in {}, and only one may: wait until it has ended, stop it with Ctrl-C "
                "(SIGINT), or name another folder with --out. tenon report shows how far it is",
                holder > 0 ? fmt::format("process {}", holder) : "another process", folder);
          }};
}

bool is_study_folder(const std::string& folder) {
  return fs::exists(fs::path(folder) / kStudyRecord);
}

StudyOutcome report_study(const std::string& folder) {
  return report_stored(folder, Answering::kNone);
}

std::string outcome_json(const StudyOutcome& outcome) {
  return outcome.ladder ? ladder_json(*outcome.ladder, true) : report_json(outcome.result);
}

std::string closing_text(const StudyOutcome& outcome) {
  if (outcome.ladder) return ladder_text(*outcome.ladder) + outcome.report_html_path + "\n";
  std::string out;
  for (const FailedJob& f : outcome.runs.failed) {
    out += fmt::format("{} seed {} failed: {}; end of {}:\n",
                       outcome.result.study.experiment.arms[f.job.arm].name, f.job.seed, f.reason, f.job.log);
    std::istringstream lines(f.log_tail.empty() ? "(empty)" : f.log_tail);
    for (std::string line; std::getline(lines, line);) out += "  | " + line + "\n";
  }
  if (outcome.result.comparisons.empty()) {
    const Verdict& v = outcome.result.refusal;
    out += v.headline + "\n";
    for (const std::string& s : v.sentences) out += "  - " + s + "\n";
  }
  if (outcome.result.factorial) return out + factorial_text(outcome.result) + outcome.report_html_path + "\n";
  for (const Comparison& c : outcome.result.comparisons) {
    out += c.verdict.headline + "\n";
    for (const std::string& s : c.verdict.sentences) out += "  " + s + "\n";
  }
  return out + outcome.report_html_path + "\n";
}

}  // namespace tenon::ab
