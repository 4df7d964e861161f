// The schedule of a study's runs; see runner.hpp.
#include "ab/runner.hpp"

#include "ab/format.hpp"
#include "ab/study.hpp"
#include "base/child_process.hpp"
#include "base/elapsed.hpp"
#include "base/file_descriptor.hpp"
#include "base/signals.hpp"
#include "config/run_schema.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <thread>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::size_t kTailLines = 20;

/// Relative paths may count from the file that says them, and an arm's file is in another folder.
Value with_absolute_paths(const Config& config, const Value& resolved) {
  Value root = config.root();
  take_paths(root, resolved);
  const std::vector<std::string> paths = config::plugin_paths(config);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Value& entry = root.find("plugins")->find("paths")->array()[i];
    const Origin origin = entry.origin;
    entry = Value(paths[i]);
    entry.origin = origin;
  }
  return root;
}

/// A child with no input and its output in `log`, which is emptied first. Error(kRun) if it cannot be
/// started.
base::ChildProcess started(const std::vector<std::string>& command, const std::string& log) {
  base::ChildFiles files;
  files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  files.open(STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC);
  files.copy(STDOUT_FILENO, STDERR_FILENO);
  base::ChildProcess child;
  if (const int error = child.start({command[0], {command.begin() + 1, command.end()}, {}}, files);
      error != 0) {
    fail_run(
        fmt::format("cannot start '{}' with its output in {}: {}", command[0], log, std::strerror(error)));
  }
  return child;
}

/// The last `lines` lines of a file, at most 8 KiB; "" if it cannot be read.
std::string tail_of(const std::string& path, std::size_t lines) {
  constexpr std::streamoff kMost = 8192;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kMost));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  std::size_t begin = text.size();
  for (std::size_t seen = 0; begin > 0; --begin) {
    if (text[begin - 1] == '\n' && ++seen == lines) break;
  }
  return text.substr(begin);
}

struct Running {
  Job job;
  base::ChildProcess child;
  Clock::time_point started;
  bool overdue = false;
};

class Schedule {
 public:
  Schedule(const Experiment& experiment, std::vector<Job> jobs, const RunnerOptions& options)
      : experiment_(experiment), options_(options), waiting_(std::move(jobs)), total_(waiting_.size()) {}

  RunnerResult run() {
    std::atomic<int> asked{0};
    std::atomic<bool> insisted{false};
    const base::StopListener listener(
        [&](const std::string& signal, bool) { asked = signal == "SIGINT" ? SIGINT : SIGTERM; },
        [&] { insisted = true; });
    std::reverse(waiting_.begin(), waiting_.end());  // jobs are popped from the back
    while (!waiting_.empty() || !running_.empty()) {
      start_more();
      report(false, "");
      std::this_thread::sleep_for(kPoll);
      handle_signal(asked.exchange(0));
      if (insisted.exchange(false)) kill_at_ = Clock::now();
      enforce_deadlines();
      collect();
    }
    return std::move(result_);
  }

 private:
  std::string describe(const Job& job) const {
    return fmt::format("{} seed {}{}{}", experiment_.arms[job.arm].name, job.seed,
                       job.note.empty() ? "" : ", ", job.note);
  }

  void start_more() {
    while (!result_.interrupted && !waiting_.empty() &&
           running_.size() < static_cast<std::size_t>(options_.jobs)) {
      Job job = std::move(waiting_.back());
      waiting_.pop_back();
      try {
        fs::create_directories(job.parent);
        base::ChildProcess child = started(job.command, job.log);
        running_.push_back({std::move(job), std::move(child), Clock::now()});
      } catch (const std::exception& error) {
        result_.failed.push_back({std::move(job), 1, error.what(), ""});
      }
    }
  }

  void handle_signal(int signal) {
    if (signal == 0) return;
    for (Running& r : running_) r.child.signal_group(signal);
    kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(options_.stop_grace_s));
    result_.interrupted = true;
    waiting_.clear();
  }

  void enforce_deadlines() {
    const auto now = Clock::now();
    for (Running& r : running_) {
      const double late = base::seconds(now - r.started) - options_.run_deadline_s;
      if (late > 0 && !r.overdue) {
        r.overdue = true;
        r.child.signal_group(SIGTERM);
      }
      if (late > options_.stop_grace_s || (result_.interrupted && now > kill_at_))
        r.child.signal_group(SIGKILL);
    }
  }

  void collect() {
    for (auto r = running_.begin(); r != running_.end();) {
      if (!r->child.ended()) {
        ++r;
        continue;
      }
      const double seconds = base::seconds_since(r->started);
      finish(*r, seconds);
      r = running_.erase(r);
    }
  }

  void finish(Running& r, double seconds) {
    const std::string who = describe(r.job);
    const int status = r.child.status();
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (status == 0 && !r.overdue) {
      ++result_.completed;
      seconds_ += seconds;
      report(true, fmt::format("{} done in {}", who, duration_text(seconds)));
      return;
    }
    std::string reason =
        r.overdue ? fmt::format("stopped after its deadline of {}", duration_text(options_.run_deadline_s))
        : signal != 0 ? fmt::format("ended by signal {}", signal)
                      : fmt::format("exit status {}", WEXITSTATUS(status));
    report(true, fmt::format("{} FAILED: {}", who, reason));
    const int exit_status = signal != 0 ? 128 + signal : WEXITSTATUS(status);
    result_.failed.push_back({r.job, exit_status, std::move(reason), tail_of(r.job.log, kTailLines)});
  }

  void report(bool finished, const std::string& news) {
    if (!options_.progress) return;
    const std::size_t done = result_.completed + result_.failed.size();
    std::string line = fmt::format("{} {}/{} runs", options_.label, done, total_);
    if (finished) {
      line += ": " + news;
    } else {
      std::vector<std::string> names;
      for (const Running& r : running_) names.push_back(describe(r.job));
      if (!names.empty()) line += fmt::format(", running {}", fmt::join(names, ", "));
      if (result_.completed > 0 && !result_.interrupted) {
        const double left = seconds_ / static_cast<double>(result_.completed) *
                            static_cast<double>(total_ - done) / options_.jobs;
        line += ", about " + duration_text(left) + " left";
      }
      if (result_.interrupted) line += ", stopping";
    }
    if (finished || line != last_line_) options_.progress(line, finished);
    last_line_ = finished ? "" : line;
  }

  const Experiment& experiment_;
  const RunnerOptions& options_;
  std::vector<Job> waiting_;
  std::size_t total_;
  std::list<Running> running_;
  RunnerResult result_;
  Clock::time_point kill_at_{};
  double seconds_ = 0;
  std::string last_line_;
};

}  // namespace

void take_paths(Value& value, const Value& resolved) {
  if (value.is_table()) {
    for (Member& member : value.table()) {
      if (const Value* other = resolved.find(member.key)) take_paths(member.value, *other);
    }
  } else if (value.is_array() && resolved.is_array()) {
    const std::size_t both = std::min(value.array().size(), resolved.array().size());
    for (std::size_t i = 0; i < both; ++i) take_paths(value.array()[i], resolved.array()[i]);
  } else if (value.is_text() && !value.text().starts_with("stage:") && resolved.is_text() &&
             value.origin.text() == resolved.origin.text()) {
    Value found(resolved.text());
    found.origin = value.origin;
    value = std::move(found);
  }
}

std::string arm_file_path(const std::string& folder, const Arm& arm) {
  return (fs::path(folder) / "arms" / (arm.name + ".toml")).string();
}

std::vector<std::string> arm_notes(const std::string& folder, const Arm& arm) {
  std::vector<std::string> notes;
  std::ifstream file(arm_file_path(folder, arm));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kArmNote)) notes.push_back(line.substr(kArmNote.size()));
  }
  return notes;
}

std::string arm_file_text(const Experiment& experiment, const Arm& arm, const RunnerOptions& options) {
  const Config config = Config::load(experiment.base, {}, arm.extends);
  Config resolved;
  if (options.resolve) {
    try {
      resolved = options.resolve(
          Config::load(experiment.base, run_sets(experiment, arm, experiment.seeds.front()), arm.extends));
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{} cannot run here, and nothing was started. Arm '{}': {}",
                                            options.study.empty() ? experiment.name : options.study, arm.name,
                                            error.what()));
    }
  }
  std::string text = fmt::format("# Arm {} of {} as it stood when the study began; written by tenon.\n",
                                 arm.name, experiment.name);
  for (const std::string& line : resolved.dropped_lines(true)) text += fmt::format("{}{}\n", kArmNote, line);
  return text + to_toml(with_absolute_paths(config, resolved.root()), true);
}

std::vector<std::string> fixed_seed_warnings(const Experiment& experiment) {
  std::vector<std::string> out;
  for (const Arm& arm : experiment.arms) {
    if (arm.own_order) continue;  // the runner sets the seeds of such an arm
    const Config config = Config::load(experiment.base, arm.set, arm.extends);
    const Value* run = config.root().find("run");
    for (const char* key : {"seed_init", "seed_order", "seed_rounding"}) {
      const Value* seed = run == nullptr || !run->is_table() ? nullptr : run->find(key);
      if (seed == nullptr) continue;
      out.push_back(fmt::format(
          "warning: arm '{}' fixes run.{} ({}), so what it draws is the same for every seed; leave it out "
          "unless that is meant",
          arm.name, key, seed->origin.text()));
    }
  }
  return out;
}

std::vector<std::string> budget_sets(const Budget& budget) {
  const bool whole = budget.kind != Axis::kSeconds;
  const std::string amount = whole ? fmt::format("{:.0f}", budget.amount) : fmt::format("{}", budget.amount);
  if (budget.kind == Axis::kSteps) return {"run.steps=" + amount};
  return {fmt::format("run.max_{}={}", axis_name(budget.kind), amount)};
}

std::vector<std::string> run_sets(const Experiment& experiment, const Arm& arm, std::int64_t seed) {
  std::vector<std::string> out = arm.set;
  const Budget own{Axis::kSteps, static_cast<double>(arm.steps)};
  for (std::string& assignment : budget_sets(arm.steps > 0 ? own : experiment.budget))
    out.push_back(std::move(assignment));
  out.push_back(fmt::format("run.seed={}", seed));
  if (arm.own_order) {
    // The pair shares initial weights; every other random stream differs.
    out.push_back(fmt::format("run.seed_init={}", seed));
    out.push_back(fmt::format("run.seed_order={}", other_seed(seed)));
    out.push_back(fmt::format("run.seed_rounding={}", other_seed(seed)));
  }
  return out;
}

std::int64_t other_seed(std::int64_t seed) {
  return seed + (std::int64_t{1} << 40);
}

namespace {

/// Stages of equal configuration are trained once per seed, for whichever arm comes first.
bool has_stages(const Experiment& experiment, const Arm& arm) {
  return fs::exists(experiment.base) &&
         Config::load(experiment.base, arm.set, arm.extends).find("stage") != nullptr;
}

}  // namespace

Job job_of(const Experiment& experiment, const Arm& arm, std::int64_t seed, const std::string& parent,
           const RunnerOptions& options) {
  Job job;
  job.seed = seed;
  job.parent = parent;
  job.log = (fs::path(parent) / "output.log").string();
  job.command = {options.program, "train", arm_file_path(options.folder, arm)};
  for (const std::string& assignment : run_sets(experiment, arm, seed)) {
    job.command.push_back("--set");
    job.command.push_back(assignment);
  }
  job.command.insert(job.command.end(), {"--run-dir", parent, "--quiet"});
  if (has_stages(experiment, arm))
    job.command.insert(job.command.end(), {"--stages", (fs::path(options.folder) / "stages").string()});
  return job;
}

bool run_completed(const std::string& parent) {
  const fs::path where = fs::path(parent) / std::to_string(newest_attempt(parent)) / "summary.json";
  const std::optional<std::string> text = base::read_file(where);
  if (!text) return false;
  RunRecord run;
  try {
    parse_summary(*text, where.string(), run);
    return run.status == "completed";
  } catch (const Error&) {
    return false;  // a kill can come before the summary
  }
}

std::vector<Job> plan_jobs(const Experiment& experiment, const RunnerOptions& options) {
  std::vector<Job> out;
  for (std::size_t s = 0; s < experiment.seeds.size(); ++s) {
    for (std::size_t i = 0; i < experiment.arms.size(); ++i) {
      const std::size_t a = s % 2 == 0 ? i : experiment.arms.size() - 1 - i;
      const Arm& arm = experiment.arms[a];
      const std::int64_t seed = experiment.seeds[s];
      Job job = job_of(experiment, arm, seed, run_parent(options.folder, arm.name, seed), options);
      job.arm = a;
      out.push_back(std::move(job));
    }
  }
  return out;
}

void write_arm_files(const Experiment& experiment, const RunnerOptions& options) {
  fs::create_directories(fs::path(options.folder) / "arms");
  for (const Arm& arm : experiment.arms) {
    const std::string path = arm_file_path(options.folder, arm);
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << arm_file_text(experiment, arm, options);
    if (!out.flush())
      fail_run(fmt::format("cannot write {}; is the disk full or the folder read-only?", path));
    if (!options.progress) continue;
    for (const std::string& note : arm_notes(options.folder, arm))
      options.progress(fmt::format("arm '{}': {}", arm.name, note), true);
  }
}

RunnerResult run_jobs(const Experiment& experiment, const RunnerOptions& options) {
  write_arm_files(experiment, options);
  return run_planned(experiment, plan_jobs(experiment, options), options);
}

RunnerResult run_planned(const Experiment& experiment, std::vector<Job> jobs, const RunnerOptions& options) {
  if (options.jobs < 1) fail_config(fmt::format("--jobs is {}; expected at least 1", options.jobs));
  if (options.jobs > 1 && experiment.budget.kind == Axis::kSeconds) {
    fail_config("a budget in seconds is fair only if runs do not share the machine; use --jobs 1");
  }
  return Schedule(experiment, std::move(jobs), options).run();
}

}  // namespace tenon::ab
