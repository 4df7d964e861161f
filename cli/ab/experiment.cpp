// The experiment's rules; see experiment.hpp. Parsing lives in experiment_toml.cpp.
#include "ab/experiment.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tenon::ab {
namespace {

void check_arms(const Experiment& e, std::vector<std::string>& problems) {
  if (e.arms.size() < 2) {
    problems.push_back(
        fmt::format("an experiment compares at least two arms, found {}; add [[arm]] tables "
                    "(the first is the baseline)",
                    e.arms.size()));
  }
  std::set<std::string> names;
  for (const Arm& arm : e.arms) {
    if (!usable_as_folder(arm.name)) {
      problems.push_back(
          fmt::format("arm name '{}' cannot name a folder; use letters, digits, '.', '_' and '-', "
                      "at most 64, not starting with '.' or '-'",
                      arm.name));
    }
    if (!names.insert(arm.name).second) problems.push_back(fmt::format("two arms are called '{}'", arm.name));
  }
}

}  // namespace

bool usable_as_folder(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), plain);
}

const char* axis_name(Axis axis) {
  switch (axis) {
    case Axis::kSteps:
      return "steps";
    case Axis::kSamples:
      return "samples";
    case Axis::kTokens:
      return "tokens";
    case Axis::kSeconds:
      return "seconds";
    case Axis::kBytes:
      return "bytes";
  }
  return "steps";
}

Axis axis_from_name(const std::string& name) {
  for (Axis axis : kAxes) {
    if (name == axis_name(axis)) return axis;
  }
  fail_config(
      fmt::format("unknown budget '{}'; expected one of steps, samples, tokens, seconds, bytes", name));
}

bool lower_is_better(const std::string& metric) {
  const std::string name = metric.substr(metric.rfind('/') + 1);
  return name != "accuracy" && name != "auc" && !name.ends_with("_per_s");
}

void validate(const Experiment& e) {
  std::vector<std::string> problems;
  check_arms(e, problems);
  if (e.seeds.empty())
    problems.push_back("seeds is empty; name the seeds that every arm runs, e.g. seeds = [1, 2, 3, 4, 5]");
  if (std::set<std::int64_t>(e.seeds.begin(), e.seeds.end()).size() != e.seeds.size()) {
    problems.push_back("seeds repeats a seed; the same seed twice is one pair, not two");
  }
  if (std::any_of(e.seeds.begin(), e.seeds.end(), [](std::int64_t s) { return s < 0; })) {
    problems.push_back("seeds contains a negative number; seeds count from 0");
  }
  if (!(e.budget.amount > 0))
    problems.push_back("no budget; write e.g. budget = { steps = 400 }, equal for all arms");
  if (!(e.alpha > 0 && e.alpha < 0.5))
    problems.push_back(fmt::format("alpha is {}; expected between 0 and 0.5", e.alpha));
  if (e.margin && !(*e.margin > 0)) {
    problems.push_back(
        fmt::format("margin is {}; expected a positive difference in units of {}", *e.margin, e.metric));
  }
  if (e.decide_by == DecideBy::kTimeToTarget && !e.target) {
    problems.push_back(fmt::format("decide_by = \"time_to_target\" needs target = <value of {}>", e.metric));
  }
  if (e.decide_by == DecideBy::kTimeToTarget && e.margin) {
    problems.push_back(
        "margin applies to final values; it cannot be used with decide_by = \"time_to_target\"");
  }
  if (problems.empty()) return;
  for (std::string& p : problems) p = fmt::format("{}: {}", e.path.empty() ? e.name : e.path, p);
  fail_config(fmt::format("{}", fmt::join(problems, "\n")));
}

Experiment against_itself(const Experiment& experiment) {
  Experiment out = experiment;
  Arm copy = experiment.arms.front();
  copy.name += "-again";
  copy.own_order = true;
  out.arms = {experiment.arms.front(), copy};
  out.question = fmt::format("Does the pipeline find a difference where there is none ({} against itself)?",
                             experiment.arms.front().name);
  return out;
}

}  // namespace tenon::ab
