// Computation of comparisons.hpp.
#include "reproduce/comparisons.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::reproduce {
namespace {

std::size_t place_of(const StudyFile& study, const std::string& arm) {
  const auto found = std::find_if(study.arms.begin(), study.arms.end(),
                                  [&](const StudyArm& each) { return each.arm.name == arm; });
  return static_cast<std::size_t>(found - study.arms.begin());
}

void fail(StudyResult& result, std::string why) {
  result.warnings.push_back(std::move(why));
  result.complete = false;
}

/// Values of a metric after the updates 1 ... n, from the lines of a run; empty where one is missing.
std::vector<double> first_values(const RunResult& run, const AgreeingPair& pair) {
  std::vector<double> values;
  if (!run.record) return values;
  const auto series = run.record->series.find(pair.metric);
  if (series == run.record->series.end()) return values;
  for (const ab::MetricPoint& point : series->second) {
    if (point.step == static_cast<std::int64_t>(values.size()) + 1 && point.step <= pair.updates)
      values.push_back(point.value);
  }
  if (values.size() != static_cast<std::size_t>(pair.updates)) values.clear();
  return values;
}

}  // namespace

void read_columns(StudyResult& result, const Evaluator& evaluate) {
  for (const OtherData& other : result.study.evaluations) {
    if (!says(other.sizes, result.size.name)) continue;
    Column column{other, {}};
    for (std::size_t a = 0; a < result.arms.size(); ++a) {
      const std::string& arm = result.study.arms[a].arm.name;
      std::vector<std::optional<double>>& values = column.values.emplace_back(result.arms[a].runs.size());
      if (!says(other.arms, arm)) continue;
      for (std::size_t s = 0; s < values.size(); ++s) {
        const RunResult& run = result.arms[a].runs[s];
        if (run.status != "completed" || !run.record) continue;
        const auto who = [&] { return fmt::format("{}, seed {}, {}", arm, run.seed, other.name); };
        try {
          const auto metrics = evaluate(run.record->folder, other.set);
          const auto found = metrics.find(other.metric);
          if (found != metrics.end() && std::isfinite(found->second)) {
            values[s] = found->second;
          } else {
            fail(result, fmt::format("{}: no finite value of {} was measured", who(), other.metric));
          }
        } catch (const Error& error) {
          fail(result, fmt::format("{}: {}", who(), error.what()));
        }
      }
    }
    result.columns.push_back(std::move(column));
  }
}

void read_agreements(StudyResult& result) {
  for (const AgreeingPair& pair : result.study.agreements) {
    Agreement out{pair, {}, 0, 0, 0};
    const ArmResult& arm = result.arms[place_of(result.study, pair.arm)];
    const ArmResult& with = result.arms[place_of(result.study, pair.with)];
    for (std::size_t s = 0; s < arm.runs.size(); ++s) {
      const std::vector<double> values = first_values(arm.runs[s], pair),
                                wanted = first_values(with.runs[s], pair);
      if (values.empty() || wanted.empty()) {
        fail(result,
             fmt::format("{} and {}, seed {}: expected {} after each of the first {} updates of both; "
                         "let run.log_every be 1",
                         pair.arm, pair.with, arm.runs[s].seed, pair.metric, pair.updates));
        continue;
      }
      ++out.seeds;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double apart = std::abs(values[i] - wanted[i]) / std::abs(wanted[i]);
        if (out.largest && !(apart > *out.largest)) continue;
        out.largest = apart;
        out.seed = arm.runs[s].seed;
        out.update = static_cast<std::int64_t>(i) + 1;
      }
    }
    result.agreements.push_back(std::move(out));
  }
}

void read_verdicts(StudyResult& result, const ab::Experiment& experiment) {
  const StudyFile& study = result.study;
  if (study.margin <= 0) return;
  for (const StudyArm& baseline : study.arms) {
    ab::Study compared;
    compared.experiment = experiment;
    compared.experiment.margin = study.margin;
    compared.experiment.arms.clear();
    const auto add = [&](std::size_t a) {
      compared.experiment.arms.push_back(experiment.arms[a]);
      ab::ArmRuns& runs = compared.arms.emplace_back();
      runs.arm = experiment.arms[a];
      for (const RunResult& run : result.arms[a].runs) {
        runs.runs.push_back(run.value ? run.record : std::nullopt);
        if (!run.value)
          compared.refusals.push_back(
              fmt::format("{}, seed {}: {}", experiment.arms[a].name, run.seed, run.status));
      }
    };
    add(place_of(study, baseline.arm.name));
    for (std::size_t a = 0; a < study.arms.size(); ++a) {
      if (study.arms[a].baseline == baseline.arm.name && study.arms[a].arm.name != baseline.arm.name) add(a);
    }
    if (compared.arms.size() < 2) continue;
    if (compared.refusals.empty()) ab::check_study(compared);
    const ab::StudyResult analysed = ab::analyse(std::move(compared));
    for (std::size_t i = 1; i < analysed.study.arms.size(); ++i) {
      const ab::Verdict& verdict =
          analysed.comparisons.empty() ? analysed.refusal : analysed.comparisons[i - 1].verdict;
      result.verdicts.push_back({analysed.study.arms[i].arm.name, verdict});
    }
  }
}

}  // namespace tenon::reproduce
