// The members of the line, and the statuses; see verdict_line.hpp.
#include "ab/verdict_line.hpp"

#include "ab/factorial.hpp"
#include "ab/family.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

namespace tenon::ab {
namespace {

using nlohmann::ordered_json;

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

ordered_json contrast(const Comparison& c, const char* kind, const std::string& name, const char* verdict) {
  const MeanEstimate& d = c.primary.difference;
  return {{"kind", kind},
          {"name", name},
          {"verdict", verdict},
          {"effect", finite(d.mean)},
          {"interval", ordered_json::array({finite(d.interval.low), finite(d.interval.high)})},
          {"p", finite(c.primary.adjusted_p)},
          {"pairs", c.primary.differences.size()}};
}

ordered_json effects(const StudyResult& result) {
  const std::vector<Factor>& factors = result.study.experiment.factors;
  ordered_json out = ordered_json::array();
  for (const MainEffect& effect : result.factorial->main) {
    const Outcome outcome = effect.contrast.verdict.outcome;
    out.push_back(contrast(effect.contrast, "main", level_text(factors[effect.factor], effect.level),
                           outcome_name(outcome)));
    const Comparison& alone = effect.one_at_a_time;
    out.back()["one_at_a_time"] = {{"verdict", outcome_name(alone.verdict.outcome)},
                                   {"effect", finite(alone.primary.difference.mean)},
                                   {"misleads", effect.misleads}};
  }
  for (const Interaction& i : result.factorial->interactions)
    out.push_back(contrast(i.contrast, "interaction", interaction_text(factors, i), reading_name(i.reading)));
  return out;
}

/// The main effect whose verdict is that of the study.
const MainEffect& leading_effect(const FactorialResult& f) {
  return *std::find_if(f.main.begin(), f.main.end(), [&](const MainEffect& effect) {
    return effect.contrast.verdict.outcome == f.verdict.outcome;
  });
}

std::vector<Outcome> outcomes_of(const StudyResult& result) {
  std::vector<Outcome> out;
  if (result.factorial) return {result.factorial->verdict.outcome};
  for (const Comparison& c : result.comparisons) out.push_back(c.verdict.outcome);
  return out;
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
  if (result.factorial) {
    const ordered_json all = effects(result);
    const MainEffect& lead = leading_effect(*result.factorial);
    const ordered_json& first = all[static_cast<std::size_t>(&lead - result.factorial->main.data())];
    for (const char* key : {"verdict", "effect", "interval", "pairs"}) out[key] = first[key];
    out["e_values"] = nullptr;
    out["effects"] = all;
  }
  out["seconds"] = result.study.wall_clock_valid() ? finite(result.study.sum(&RunRecord::wall_s)) : nullptr;
  out["bytes"] = finite(result.study.sum(&RunRecord::bytes_sent));
  out["metric"] = result.study.experiment.metric;
  out["lower_is_better"] = result.study.experiment.lower_is_better;
  out["baseline"] = result.study.experiment.arms.front().name;
  out["arms"] = arms;
  if (outcome.ladder) {
    double bytes = 0;
    std::optional<double> seconds = 0.0;
    for (const PointStudy& point : outcome.ladder->points) {
      bytes += point.bytes;
      seconds = seconds && point.seconds ? std::optional<double>(*seconds + *point.seconds) : std::nullopt;
    }
    out["seconds"] = seconds ? finite(*seconds) : nullptr;
    out["bytes"] = finite(bytes);
    out["ladder"] = ordered_json::parse(ladder_json(*outcome.ladder, false));
  }
  if (result.study.tuning) out["tuned"] = chosen_settings(*result.study.tuning);
  if (const auto& family = result.study.experiment.family) {
    out["family"] = {{"ledger", family->ledger},
                     {"question", family->question},
                     {"level", result.study.experiment.alpha},
                     {"alpha", family->alpha},
                     {"discovery", is_discovery(result)}};
  }
  out["report"] = outcome.report_json_path;
  out["refusals"] = outcome.ladder ? outcome.ladder->refusals : result.study.refusals;
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

int verdict_status(const StudyOutcome& outcome) {
  switch (by_interest(outcomes_of(outcome.result))) {
    case Outcome::kNone:
      return outcome.exit_status;
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

}  // namespace tenon::ab
