// Runs every arm and seed of an experiment as child processes of the program itself. It knows command lines
// and exit statuses; study.hpp interprets the runs.
#pragma once

#include "ab/experiment.hpp"

#include <tenon/config.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::ab {

/// One run to make.
struct Job {
  std::size_t arm = 0;
  std::int64_t seed = 0;
  std::string parent;                ///< DIR/runs/<arm>/<seed>
  std::string log;                   ///< the child's standard output and error
  std::vector<std::string> command;  ///< program first
  std::string note = {};             ///< what a progress line says beside arm and seed
};

struct RunnerOptions {
  std::string program;  ///< the program that trains; this program's own file
  std::string folder;   ///< DIR
  int jobs = 1;
  double run_deadline_s = 7 * 86400.0;  ///< a run that takes longer is stopped and counts as failed
  double stop_grace_s = 30;             ///< time to save after Ctrl-C before a run is killed
  /// Called with a line of progress whenever it changes; `finished`: a run has ended and the line should
  /// stay.
  std::function<void(const std::string& line, bool finished)> progress = {};
  std::string label = "ab";  ///< first word of a progress line
  std::string study = {};    ///< what errors call the study; "" = by the experiment's name
  /// Checks the configuration of a run and returns it with every path absolute; null leaves paths but those
  /// of plugins as they are.
  std::function<Config(const Config& run)> resolve = {};
};

struct FailedJob {
  Job job;
  int status = 0;
  std::string reason;
  std::string log_tail;
};

struct RunnerResult {
  std::size_t completed = 0;
  std::vector<FailedJob> failed;
  bool interrupted = false;  ///< by SIGINT or SIGTERM, which was forwarded to the runs
};

/// DIR/arms/<arm>.toml: the base with the arm's files laid over it, merged once when the study begins, so
/// that an edit of a configuration during the study reaches no run. Throws Error(kConfig) for files that
/// cannot be merged.
inline constexpr std::string_view kArmNote = "# note: ";  ///< begins what a reader of the study should know
std::string arm_file_path(const std::string& folder, const Arm& arm);
/// The notes of an arm's file.
std::vector<std::string> arm_notes(const std::string& folder, const Arm& arm);
std::string arm_file_text(const Experiment& experiment, const Arm& arm, const RunnerOptions& options);

/// Gives the texts of `value` what `resolved` has in their place. Only paths differ there: what a `--set`
/// wrote has another origin, and names of stages are not resolved.
void take_paths(Value& value, const Value& resolved);

/// A line for each seed (run.seed_init, seed_order, seed_rounding) that the base or an arm fixes: the spread
/// between the study's seeds then excludes that stream.
std::vector<std::string> fixed_seed_warnings(const Experiment& experiment);

/// Writes the files of all arms. Throws Error(kRun) when that fails.
void write_arm_files(const Experiment& experiment, const RunnerOptions& options);

/// Seeds in order; the order of arms alternates from seed to seed (AB, BA, AB, ...), so that drift of the
/// machine affects all arms alike.
std::vector<Job> plan_jobs(const Experiment& experiment, const RunnerOptions& options);

/// The run of one arm, in whichever folder. The caller says which arm it is.
Job job_of(const Experiment& experiment, const Arm& arm, std::int64_t seed, const std::string& parent,
           const RunnerOptions& options);
/// Whether the newest attempt below `parent` has completed.
bool run_completed(const std::string& parent);

/// The `--set` words of the budget: run.steps, or run.max_samples, max_tokens, max_seconds, max_bytes, which
/// end a run before its run.steps.
std::vector<std::string> budget_sets(const Budget& budget);

/// The `--set` words of one run: those of the arm, the budget, the seed.
std::vector<std::string> run_sets(const Experiment& experiment, const Arm& arm, std::int64_t seed);

/// The seed of an A/A copy's order and rounding streams: fixed, positive, and different from every seed of
/// the study.
std::int64_t other_seed(std::int64_t seed);

/// Runs all jobs, at most options.jobs at a time. A failed run does not stop the others. After SIGINT or
/// SIGTERM no run is started any more, the signal is passed on, and runs that do not end within the grace
/// period are killed.
RunnerResult run_jobs(const Experiment& experiment, const RunnerOptions& options);
/// As run_jobs, for some of the planned jobs, whose arm files are written.
RunnerResult run_planned(const Experiment& experiment, std::vector<Job> jobs, const RunnerOptions& options);

}  // namespace tenon::ab
