// tenon replay: computes slots of a run again from one of its checkpoints, and compares the digests of every
// tensor with those that the run recorded ([run] witness_every).
#include "command_line.hpp"
#include "replay_attempt.hpp"
#include "witness_answer.hpp"

#include "config/run_schema.hpp"
#include "record/run_files.hpp"
#include "record/run_folder.hpp"
#include "witness/witness_comparison.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <set>

namespace tenon::cli {
namespace {

void declare_replay(po::options_description& options) {
  options.add_options()("step", po::value<std::int64_t>(), "N  slot to compute again");
  options.add_options()(
      "from", po::value<std::int64_t>(),
      "N  begin at the checkpoint of slot N instead of the newest one; 0 = initial weights");
  options.add_options()("on", po::value<std::string>(), "DEVICE  compute on another device: cpu, cuda");
  options.add_options()("kernels", po::value<std::string>(), "NAME  compute with another kernel set");
  options.add_options()("accept-plugins", "go on although plugins are not those that trained the run");
  declare_verify(options);
  options.add_options()("json", "print what was found as JSON");
}

/// The transports of processes whose sums have the order that threads have, too.
constexpr const char* kOfEqualSums[] = {"thread", "socket", "mpi", "openmpi", "mpich"};

/// A run to compute again.
struct Replayed {
  std::string attempt;
  std::int64_t step = 0, from = 0;
  Manifest before;
  std::vector<train::WitnessRecord> recorded;  ///< by rank
  Config config;
  std::vector<std::string> unequal;  ///< why bits may differ
};

/// The text of a key of the run, "" where it has none.
std::string text_at(const Config& config, const char* key) {
  const Value* const value = config.find(key);
  return value == nullptr || !value->is_text() ? "" : value->text();
}

void require_recorded(const Replayed& run, std::int64_t steps) {
  const auto refuse = [&](const std::string& why) {
    fail_config(fmt::format("tenon replay: {}: {}", run.attempt, why));
  };
  if (run.step < 0 || run.step >= steps)
    refuse(fmt::format("slot {} is beyond the run, which has slots 0 ... {}", run.step, steps - 1));
  if (run.recorded.empty()) refuse("it has no witness; train it with [run] witness_every above 0");
  const std::set<std::int64_t> slots = train::recorded_slots(run.recorded);
  if (slots.contains(run.step)) return;
  if (slots.empty()) refuse("its witness has no slot yet");
  std::int64_t nearest = *slots.begin();
  for (const std::int64_t slot : slots) {
    if (std::abs(slot - run.step) <= std::abs(nearest - run.step)) nearest = slot;
  }
  refuse(fmt::format("slot {} was not recorded; the nearest that was is slot {} (recorded: {})", run.step,
                     nearest, train::slots_text(slots)));
}

/// As the run had it, but for what the command line changes and for parts that only look on or draw power.
/// Products of some kernels depend on the number of threads, so that is the run's on any machine.
Config replayed_config(Runtime& runtime, Replayed& run, const po::variables_map& values) {
  const std::string file = run.attempt + "/config.resolved.toml";
  const Config recorded = Config::load(file, {});
  std::vector<std::string> sets;
  const auto take = [&](const char* option, const char* key) {
    if (values.count(option) == 0) return;
    const std::string& wanted = values[option].as<std::string>();
    if (wanted != text_at(recorded, key)) run.unequal.push_back(fmt::format("{} = \"{}\"", key, wanted));
    sets.push_back(fmt::format("{}='{}'", key, wanted));
  };
  take("on", "device.type");
  take("kernels", "device.kernels");
  if (run.before.threads > 0) sets.push_back(fmt::format("device.threads={}", run.before.threads));
  if (recorded.find("recovery.type") != nullptr)
    sets.emplace_back("recovery.canary=false");  // what differs is told tensor by tensor
  const std::string transport = text_at(recorded, "transport.type");
  if (!transport.empty() && transport != "thread") {
    sets.emplace_back("transport.type='thread'");
    if (std::ranges::find(kOfEqualSums, transport) == std::end(kOfEqualSums))
      run.unequal.push_back(
          fmt::format("the run's transport '{}', whose sums may have another order", transport));
  }
  Config config = load_run(runtime, file, sets);
  Value root = config.root();
  root.erase("observe");
  root.erase("power");
  return config.with_root(std::move(root));
}

std::int64_t planned_steps(const Config& config, const std::string& attempt) {
  const Value* const steps = config.find("run.steps");
  if (steps == nullptr) fail_config(fmt::format("{}/config.resolved.toml has no [run] steps", attempt));
  return steps->integer();
}

Replayed open_run(Runtime& runtime, FileSystem& files, const po::variables_map& values) {
  Replayed run;
  run.attempt = open_newest_attempt(files, values["run"].as<std::vector<std::string>>()[0]).path;
  run.step = values["step"].as<std::int64_t>();
  run.before = read_manifest(files, run.attempt);
  run.config = replayed_config(runtime, run, values);
  run.recorded = train::read_witnesses(files, run.attempt);
  require_recorded(run, planned_steps(run.config, run.attempt));
  const config::CheckedRun checked = config::check_run(run.config, runtime.registry(), {});
  const auto ranks = static_cast<std::size_t>(checked.core.parallel.trainers());
  if (run.recorded.size() < ranks)
    fail_config(
        fmt::format("tenon replay: {} has {} ranks and witnesses of {}; the files of the others are "
                    "missing",
                    run.attempt, ranks, run.recorded.size()));
  run.recorded.resize(ranks);  // an earlier segment may have had more
  std::optional<std::int64_t> from;
  if (values.count("from") > 0) from = values["from"].as<std::int64_t>();
  run.from = replay_start(files, run.attempt, run.step, from);
  return run;
}

/// What the run found of itself counts, and what the replay finds: its transport may be another one.
void note_unrepeatable(FileSystem& files, Replayed& run, const RunResult& replayed) {
  std::vector<std::string> found{replayed.nondeterminism};
  if (files.exists(run.attempt + "/summary.json"))
    found.insert(found.begin(), read_summary(files, run.attempt).nondeterminism);
  for (const std::string& why : found) {
    if (why.empty() || why.starts_with("not checked")) continue;
    run.unequal.push_back("the run itself, which is not repeatable: " + why);
    return;
  }
}

void print_answer(const Replayed& run, const Manifest& now, const train::WitnessComparison& comparison,
                  bool json) {
  if (json) {
    JsonWriter out;
    out.begin_object();
    out.member("run", run.attempt);
    out.member("step", run.step);
    out.member("from", run.from);
    out.member("kernels", now.kernels);
    out.begin_array("may_differ");
    for (const std::string& why : run.unequal) {
      out.begin_object();
      out.member("why", why);
      out.end_object();
    }
    out.end_array();
    add_witness(out, comparison);
    out.end_object();
    std::cout << out.take();
    return;
  }
  std::cout << fmt::format(
      "slots {} ... {} of {}, computed again from {} with kernels {}\n", run.from, run.step, run.attempt,
      run.from == 0 ? "the beginning" : fmt::format("its checkpoint of slot {}", run.from), now.kernels);
  std::cout << witness_text(comparison, "the run", "the replay");
  if (run.unequal.empty()) return;
  for (const std::string& why : run.unequal) std::cout << fmt::format("bits may differ because of {}\n", why);
  std::cout
      << "digests say that values differ, not by how much; `tenon compare --numerics` of two runs does, and "
         "docs/arithmetic.md has the bounds of devices and kernels\n";
}

/// Errors name the run in place of the temporary attempt.
RunResult train_again(Runtime& runtime, const Replayed& run, const TrainRequest& request) {
  try {
    return runtime.train(run.config, request);
  } catch (const Error& error) {
    std::string text = error.what();
    const std::string attempt = request.run_dir + "/1";
    for (std::size_t at = text.find(attempt); at != std::string::npos; at = text.find(attempt, at))
      text.replace(at, attempt.size(), run.attempt);
    throw Error(error.kind(), "tenon replay: " + text);
  }
}

int run_replay(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kReplay, {"run"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("run") == 0 || parsed.values.count("step") == 0)
    fail_config("tenon replay: which run, and which slot? usage: tenon replay RUN --step N [options]");
  const auto files = make_posix_files();
  Runtime runtime;
  Replayed run = open_run(runtime, *files, parsed.values);
  const ReplayAttempt scratch(*files, run.attempt, run.from);

  TrainRequest request;
  request.run_dir = scratch.folder();
  request.resume = scratch.resumes();
  request.accept_plugins = parsed.values.count("accept-plugins") > 0 && request.resume;
  request.quiet = true;
  request.handle_signals = true;
  request.replay_to = run.step;
  std::vector<std::string> line{"replay"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  request.command_line = quoted_command_line(line);
  const RunResult result = train_again(runtime, run, request);
  if (!result.error.empty() || result.status != "completed") {
    std::cerr << fmt::format("tenon replay: the replay {}: {}\n", result.status, result.error);
    return std::max(1, result.exit_status);
  }

  const Manifest now = read_manifest(*files, result.folder);
  if (run.before.kernels != now.kernels && run.unequal.empty())
    run.unequal.push_back(fmt::format("kernels: the run had '{}'", run.before.kernels));
  note_unrepeatable(*files, run, result);
  const train::WitnessComparison comparison =
      train::compare_witnesses(run.recorded, run.attempt, train::read_witnesses(*files, result.folder),
                               "the replay", {run.from, run.step});
  print_answer(run, now, comparison, parsed.values.count("json") > 0);
  return comparison.first && run.unequal.empty() ? 1 : 0;
}

}  // namespace

const Command kReplay{"replay", "RUN --step N [options]",
                      "Compute a slot of a run again, and name the first tensor that differs.", run_replay,
                      declare_replay};

}  // namespace tenon::cli
