// Loading and checking a study; see study.hpp.
#include "ab/study.hpp"

#include "ab/runner.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string_view>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using Flat = std::map<std::string, std::string>;

// Keys that name the run and its random streams: the pairing itself.
constexpr std::string_view kPairingKeys[] = {"run.name", "run.seed", "run.seed_init", "run.seed_order",
                                             "run.seed_rounding"};

constexpr std::string_view kSeeds[] = {"run.seed_init", "run.seed_order", "run.seed_rounding"};

// Keys that determine the evaluation of a run. Batch size, order and augmentation of training data are not
// among them.
constexpr std::string_view kEvaluationPrefixes[] = {
    "data.type",  "data.path", "data.context",     "data.val",         "data.eval",
    "data.split", "data.test", "run.eval_batches", "run.eval_samples", "evaluate["};

bool is_pairing_key(const std::string& key) {
  return std::find(std::begin(kPairingKeys), std::end(kPairingKeys), key) != std::end(kPairingKeys);
}

template <std::size_t N>
bool has_prefix(const std::string& key, const std::string_view (&prefixes)[N]) {
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](std::string_view p) { return key.starts_with(p); });
}

std::string value_or_absent(const Flat& flat, const std::string& key) {
  const auto found = flat.find(key);
  return found == flat.end() ? "(absent)" : found->second;
}

std::set<std::string> keys_of(const Flat& a, const Flat& b) {
  std::set<std::string> keys;
  for (const auto& entry : a) keys.insert(entry.first);
  for (const auto& entry : b) keys.insert(entry.first);
  return keys;
}

/// "DIR/stages/NAME-DIGEST" without the digest, which depends on the seed; other values as they are.
std::string without_stage_digest(const std::string& value) {
  static const std::regex shared("(/stages/[A-Za-z0-9_-]+)-[0-9a-f]{20}");
  return std::regex_replace(value, shared, "$1");
}

template <class Relevant>
void compare_flat(const Flat& a, const Flat& b, const char* what, Relevant relevant,
                  std::vector<std::string>& out) {
  for (const std::string& key : keys_of(a, b)) {
    if (!relevant(key)) continue;
    const std::string left = value_or_absent(a, key);
    const std::string right = value_or_absent(b, key);
    if (without_stage_digest(left) != without_stage_digest(right))
      out.push_back(fmt::format("{} differs: {} is {} and {}", what, key, left, right));
  }
}

std::string all_digits(double v) {
  return fmt::format("{:.15g}", v);
}

void compare_consumption(const Experiment& e, const RunRecord& a, const RunRecord& b,
                         std::vector<std::string>& out) {
  for (const SharedAmount& shared : shared_amounts(e.budget.kind)) {
    const double left = a.consumed(shared.axis);
    const double right = b.consumed(shared.axis);
    if (shared.equal(left, right)) continue;
    out.push_back(fmt::format("the budget differs: {} and {} {} were consumed", all_digits(left),
                              all_digits(right), axis_name(shared.axis)));
  }
}

void compare_evaluation_points(const Experiment& e, const RunRecord& a, const RunRecord& b,
                               std::vector<std::string>& out) {
  if (!e.target || e.budget.kind == Axis::kSeconds || e.budget.kind == Axis::kBytes) return;
  const auto points = [&](const RunRecord& run) {
    std::vector<double> at;
    if (const auto found = run.series.find(e.metric); found != run.series.end()) {
      for (const MetricPoint& p : found->second) at.push_back(p.at(e.budget.kind));
    }
    return at;
  };
  const std::vector<double> left = points(a);
  const std::vector<double> right = points(b);
  if (left != right) {
    out.push_back(fmt::format(
        "time to target needs the same evaluation points, but {} was evaluated {} and {} times or at "
        "other {}",
        e.metric, left.size(), right.size(), axis_name(e.budget.kind)));
  }
}

std::string run_name(const ArmRuns& arm, std::int64_t seed) {
  return fmt::format("arm '{}', seed {}", arm.arm.name, seed);
}

// One step may overshoot a budget that is not a multiple of the batch.
void check_own_budget(const Study& study, const std::string& who, const RunRecord& run,
                      std::vector<std::string>& out) {
  const Budget& budget = study.experiment.budget;
  const double consumed = run.consumed(budget.kind);
  const double one_step = run.steps > 0 ? consumed / run.steps : 0;
  const bool loose = budget.kind == Axis::kSeconds || budget.kind == Axis::kBytes;
  const double slack = std::max(one_step, loose ? kLooseTolerance * budget.amount : 0.0);
  const bool short_of = consumed < budget.amount - (loose ? slack : 0.0);
  const bool beyond =
      budget.kind == Axis::kSteps ? consumed > budget.amount : consumed > budget.amount + slack;
  if (short_of || beyond) {
    out.push_back(fmt::format("{}: consumed {} {}, the budget is {}", who, all_digits(consumed),
                              axis_name(budget.kind), all_digits(budget.amount)));
  }
}

void check_run(Study& study, const ArmRuns& arm, std::size_t seed_index) {
  const Experiment& e = study.experiment;
  const std::string who = run_name(arm, e.seeds[seed_index]);
  if (!arm.runs[seed_index]) return;  // load_study has reported the reason
  const RunRecord& run = *arm.runs[seed_index];
  for (const std::string& note : run.notes) study.notes.push_back(note);
  if (run.status != "completed") {
    study.refusals.push_back(
        fmt::format("{}: the run is '{}', not completed ({})", who, run.status, run.folder));
    return;
  }
  check_own_budget(study, who, run, study.refusals);
  const std::optional<double> value = run.final_value(e.metric);
  if (!value) {
    study.refusals.push_back(fmt::format("{}: no value of {} was recorded ({})", who, e.metric, run.folder));
  } else if (!std::isfinite(*value)) {
    study.refusals.push_back(fmt::format("{}: the run diverged, {} ended as {}", who, e.metric, *value));
  }
}

void check_same_within_arm(Study& study, const ArmRuns& arm) {
  const RunRecord* first = nullptr;
  for (std::size_t s = 0; s < arm.runs.size(); ++s) {
    if (!arm.runs[s]) continue;
    if (first == nullptr) {
      first = &*arm.runs[s];
      continue;
    }
    std::vector<std::string> differences;
    compare_flat(
        first->config, arm.runs[s]->config, "the configuration",
        [](const std::string& key) { return !is_pairing_key(key); }, differences);
    compare_flat(
        first->plugins_lock, arm.runs[s]->plugins_lock, "plugins.lock",
        [](const std::string&) { return true; }, differences);
    for (const std::string& d : differences) {
      study.refusals.push_back(fmt::format("arm '{}' is not one arm: between its first seed and seed {}, {}",
                                           arm.arm.name, study.experiment.seeds[s], d));
    }
  }
}

std::string seeds_text(const std::vector<std::int64_t>& seeds) {
  std::string out;
  for (std::size_t i = 0; i < seeds.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == seeds.size() ? " and " : ", ", seeds[i]);
  return out;
}

/// Runs that ended with the same weights are one run: no test may count them as a sample.
void check_seeds_matter(Study& study, const ArmRuns& arm) {
  std::map<std::string, std::vector<std::int64_t>> by_weights;
  std::map<std::string, std::set<std::string>> fixed;  // key of a seed -> its values over the runs
  for (std::size_t s = 0; s < arm.runs.size(); ++s) {
    if (!arm.runs[s] || arm.runs[s]->weights_hash.empty()) continue;
    by_weights[arm.runs[s]->weights_hash].push_back(study.experiment.seeds[s]);
    for (const std::string_view key : kSeeds) {
      const auto found = arm.runs[s]->config.find(std::string(key));
      if (found != arm.runs[s]->config.end()) fixed[found->first].insert(found->second);
    }
  }
  std::string keys;
  for (const auto& [key, values] : fixed) {
    if (values.size() == 1 && arm.runs.size() > 1)
      keys += fmt::format("{}{} = {}", keys.empty() ? "" : ", ", key, *values.begin());
  }
  for (const auto& [hash, seeds] : by_weights) {
    if (seeds.size() < 2) continue;
    study.refusals.push_back(fmt::format(
        "arm '{}': seeds {} ended with the same weights, bit for bit: they are one run, not a sample of {}. "
        "{}",
        arm.arm.name, seeds_text(seeds), seeds.size(),
        keys.empty()
            ? "Nothing that the seed changes is in it (order of samples, initial weights, rounding)"
            : fmt::format("The base or the arm fixes {}; leave that out, and run.seed draws it", keys)));
  }
  if (!keys.empty()) {
    study.notes.push_back(
        fmt::format("Arm '{}' fixes {}: what that draws is the same for every seed, so the spread between "
                    "seeds leaves it out.",
                    arm.arm.name, keys));
  }
}

void check_pairs(Study& study) {
  for (std::size_t a = 1; a < study.arms.size(); ++a) {
    for (std::size_t s = 0; s < study.arms[a].runs.size(); ++s) {
      const auto& left = study.arms[0].runs[s];
      const auto& right = study.arms[a].runs[s];
      if (!left || !right || left->status != "completed" || right->status != "completed") continue;
      for (const std::string& why : pairing_refusals(study.experiment, *left, *right)) {
        study.refusals.push_back(fmt::format("arms '{}' and '{}', seed {}: {}", study.arms[0].arm.name,
                                             study.arms[a].arm.name, study.experiment.seeds[s], why));
      }
    }
  }
}

const RunRecord* first_run(const ArmRuns& arm) {
  for (const auto& run : arm.runs) {
    if (run) return &*run;
  }
  return nullptr;
}

void find_config_difference(Study& study) {
  std::vector<const RunRecord*> first;
  std::set<std::string> keys;
  for (const ArmRuns& arm : study.arms) {
    first.push_back(first_run(arm));
    if (first.back() == nullptr) return;  // half a difference would mislead
    for (const auto& entry : first.back()->config) keys.insert(entry.first);
  }
  for (const std::string& key : keys) {
    if (is_pairing_key(key)) continue;
    ConfigRow row{key, {}};
    for (const RunRecord* run : first) {
      const auto found = run->config.find(key);
      row.values.push_back(found == run->config.end() ? "" : found->second);
    }
    if (std::any_of(row.values.begin(), row.values.end(),
                    [&](const auto& v) { return v != row.values[0]; })) {
      study.config_difference.push_back(std::move(row));
    }
  }
  if (study.self_check && !study.config_difference.empty()) {
    study.refusals.push_back(
        fmt::format("an A/A study needs equal configurations, but {} differs between the copies",
                    study.config_difference[0].key));
  }
  if (study.config_difference.empty() && !study.self_check) {
    study.notes.push_back(
        "All arms have the same configuration; the study compares a configuration with itself.");
  }
}

/// Takes the seeds that lack a completed run out of all arms, since a contrast needs every cell. Diverged
/// runs stay and are refused: a level that makes training diverge is a result, not a gap.
void leave_out_failed_seeds(Study& study, const std::map<std::size_t, std::vector<std::string>>& unread) {
  std::vector<std::size_t> kept;
  study.left_out.clear();
  for (std::size_t s = 0; s < study.experiment.seeds.size(); ++s) {
    const std::int64_t seed = study.experiment.seeds[s];
    LeftOutSeed out{seed, unread.contains(s) ? unread.at(s) : std::vector<std::string>{}};
    for (const ArmRuns& arm : study.arms) {
      const std::optional<RunRecord>& run = arm.runs[s];
      if (run && run->status != "completed")
        out.why.push_back(fmt::format("{}: the run is '{}', not completed ({})", run_name(arm, seed),
                                      run->status, run->folder));
    }
    if (out.why.empty()) {
      kept.push_back(s);
    } else {
      study.left_out.push_back(std::move(out));
    }
  }
  if (kept.empty()) study.left_out.clear();  // without a whole seed there is only what is missing, refused
  if (study.left_out.empty()) return;
  study.refusals.clear();
  std::vector<std::int64_t> seeds;
  for (const std::size_t s : kept) seeds.push_back(study.experiment.seeds[s]);
  study.experiment.seeds = std::move(seeds);
  for (ArmRuns& arm : study.arms) {
    std::vector<std::optional<RunRecord>> runs;
    for (const std::size_t s : kept) runs.push_back(std::move(arm.runs[s]));
    arm.runs = std::move(runs);
  }
}

}  // namespace

double Study::sum(double RunRecord::*amount) const {
  double out = 0;
  for (const ArmRuns& arm : arms) {
    for (const auto& run : arm.runs) out += run ? (*run).*amount : 0;
  }
  return out;
}

std::string run_parent(const std::string& folder, const std::string& arm, std::int64_t seed) {
  return (fs::path(folder) / "runs" / arm / std::to_string(seed)).string();
}

std::vector<std::string> pairing_refusals(const Experiment& e, const RunRecord& a, const RunRecord& b) {
  std::vector<std::string> out;
  compare_consumption(e, a, b, out);
  compare_flat(
      a.config, b.config, "the evaluation set",
      [](const std::string& key) { return has_prefix(key, kEvaluationPrefixes); }, out);
  compare_flat(
      a.manifest, b.manifest, "the data",
      [](const std::string& key) { return key.starts_with("data") && !key.ends_with(".path"); }, out);
  compare_flat(
      a.config, b.config, "the target", [](const std::string& key) { return key.starts_with("run.target"); },
      out);
  // A plugin that one arm alone has is what the arms differ in; one that both have is the same file.
  compare_flat(
      a.plugins_lock, b.plugins_lock, "plugins.lock",
      [&](const std::string& key) {
        const bool identity = key.ends_with(".sha256") || key.ends_with(".version");
        return identity && a.plugins_lock.contains(key) && b.plugins_lock.contains(key);
      },
      out);
  compare_evaluation_points(e, a, b, out);
  return out;
}

void check_study(Study& study) {
  for (const ArmRuns& arm : study.arms) {
    for (std::size_t s = 0; s < arm.runs.size(); ++s) check_run(study, arm, s);
    check_same_within_arm(study, arm);
    check_seeds_matter(study, arm);
  }
  check_pairs(study);
  find_config_difference(study);
  if (!study.wall_clock_valid()) {
    study.notes.push_back(
        fmt::format("{} runs shared the machine, so wall-clock numbers are left blank; run with --jobs 1 "
                    "to have them.",
                    study.jobs));
    if (study.experiment.budget.kind == Axis::kSeconds) {
      study.refusals.push_back(
          "a budget in seconds is fair only if runs do not share the machine; run with --jobs 1");
    }
  }
}

Study load_study(const Experiment& experiment, const std::string& folder, int jobs, bool self_check) {
  Study study;
  study.folder = folder;
  study.jobs = jobs;
  study.self_check = self_check;
  extend_study(study, experiment, std::vector<std::size_t>(experiment.arms.size(), experiment.seeds.size()));
  return study;
}

void extend_study(Study& study, const Experiment& experiment, const std::vector<std::size_t>& pairs) {
  study.experiment = experiment;
  study.experiment.seeds.resize(pairs.front());
  study.refusals.clear();
  study.notes.clear();
  study.config_difference.clear();
  study.arms.resize(experiment.arms.size());
  std::map<std::size_t, std::vector<std::string>> unread;  // by position of the seed
  for (std::size_t a = 0; a < experiment.arms.size(); ++a) {
    ArmRuns& runs = study.arms[a];
    runs.arm = experiment.arms[a];
    for (const std::string& note : arm_notes(study.folder, runs.arm))
      study.notes.push_back(fmt::format("arm '{}': {}", runs.arm.name, note));
    for (std::size_t s = runs.runs.size(); s < pairs[a]; ++s) {
      const std::int64_t seed = experiment.seeds[s];
      const std::string parent = run_parent(study.folder, runs.arm.name, seed);
      const int attempt = newest_attempt(parent);
      runs.runs.emplace_back();
      try {
        if (attempt == 0) fail_run(fmt::format("{}: no attempt was made", parent));
        runs.runs.back() = read_run((fs::path(parent) / std::to_string(attempt)).string());
      } catch (const Error& error) {
        unread[s].push_back(fmt::format("{}: {}", run_name(runs, seed), error.what()));
        study.refusals.push_back(unread[s].back());
      }
    }
  }
  if (!experiment.factors.empty()) leave_out_failed_seeds(study, unread);
  check_study(study);
}

}  // namespace tenon::ab
