// The members of the line, and the statuses; see verdict_line.hpp.
#include "ab/verdict_line.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::ab {
namespace {

using nlohmann::ordered_json;

constexpr Outcome kByInterest[] = {Outcome::kBetter,     Outcome::kUndecided, Outcome::kInconclusive,
                                   Outcome::kEquivalent, Outcome::kIdentical, Outcome::kWorse};

ordered_json finite(double v) {
  return std::isfinite(v) ? ordered_json(v) : ordered_json(nullptr);
}

/// e-values leave the range of doubles; beyond it stands the largest power of ten that every reader takes.
ordered_json plain_e(double log_e) {
  return std::exp(std::min(log_e, 300 * std::log(10.0)));
}

ordered_json e_values(const SequentialResult& s) {
  ordered_json out = ordered_json::array();
  for (const Evidence& e : s.course.looks) {
    ordered_json look{{"pairs", e.pairs}, {"difference", plain_e(e.log_e)}};
    if (e.log_e_above) look["above_low"] = plain_e(*e.log_e_above);
    if (e.log_e_below) look["below_high"] = plain_e(*e.log_e_below);
    out.push_back(look);
  }
  return out;
}

double sum(const ArmRuns& arm, double RunRecord::*amount) {
  double out = 0;
  for (const auto& run : arm.runs) out += run ? (*run).*amount : 0;
  return out;
}

double sum(const Study& study, double RunRecord::*amount) {
  double out = 0;
  for (const ArmRuns& arm : study.arms) out += sum(arm, amount);
  return out;
}

ordered_json comparison(const StudyResult& result, const Comparison& c) {
  const MeanEstimate& d = c.primary.difference;
  Interval interval = d.interval;
  if (c.sequential) {
    interval = c.sequential->course.looks.empty() ? Interval{-INFINITY, INFINITY}
                                                  : c.sequential->course.looks.back().interval;
  }
  return {{"arm", result.study.arms[c.other].arm.name},
          {"verdict", outcome_name(c.verdict.outcome)},
          {"effect", finite(d.mean)},
          {"interval", ordered_json::array({finite(interval.low), finite(interval.high)})},
          {"e_values", c.sequential ? e_values(*c.sequential) : ordered_json(nullptr)},
          {"pairs", c.primary.differences.size()}};
}

ordered_json chosen_settings(const Tuning& tuning) {
  ordered_json out = ordered_json::object();
  for (const Basin& basin : tuning.basins) {
    out[basin.arm] = basin.chosen ? settings(tuning.rule, basin.arm, basin.trials[*basin.chosen].position)
                                  : std::vector<std::string>{};
  }
  return out;
}

}  // namespace

std::string verdict_line(const StudyOutcome& outcome) {
  const StudyResult& result = outcome.result;
  ordered_json out{
      {"verdict", "none"}, {"effect", nullptr}, {"interval", nullptr}, {"e_values", nullptr}, {"pairs", 0}};
  ordered_json arms = ordered_json::array();
  for (const Comparison& c : result.comparisons) arms.push_back(comparison(result, c));
  if (!arms.empty()) {
    for (const auto& [key, value] : out.items()) value = arms.front().at(key);
  }
  out["seconds"] = result.study.wall_clock_valid() ? finite(sum(result.study, &RunRecord::wall_s)) : nullptr;
  out["bytes"] = finite(sum(result.study, &RunRecord::bytes_sent));
  out["metric"] = result.study.experiment.metric;
  out["lower_is_better"] = result.study.experiment.lower_is_better;
  out["baseline"] = result.study.experiment.arms.front().name;
  out["arms"] = arms;
  if (result.study.tuning) out["tuned"] = chosen_settings(*result.study.tuning);
  out["report"] = outcome.report_json_path;
  out["refusals"] = result.study.refusals;
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

int verdict_status(const StudyOutcome& outcome) {
  for (const Outcome wanted : kByInterest) {
    for (const Comparison& c : outcome.result.comparisons) {
      if (c.verdict.outcome != wanted) continue;
      switch (wanted) {
        case Outcome::kBetter:
          return 10;
        case Outcome::kWorse:
          return 11;
        case Outcome::kEquivalent:
          return 12;
        case Outcome::kIdentical:
          return 14;
        default:
          return 13;
      }
    }
  }
  return outcome.exit_status;
}

}  // namespace tenon::ab
