// report.json and experiment.json; see report.hpp.
#include "ab/ab.hpp"
#include "ab/family.hpp"

#include "ab/charts.hpp"
#include "ab/factorial.hpp"
#include "ab/tune_stage.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace tenon::ab {
namespace {

using nlohmann::ordered_json;

ordered_json number(double v) {
  return std::isfinite(v) ? ordered_json(v) : ordered_json(nullptr);
}

ordered_json numbers(const std::vector<double>& values) {
  ordered_json out = ordered_json::array();
  for (double v : values) out.push_back(number(v));
  return out;
}

ordered_json number(const Interval& i) {
  return ordered_json::array({number(i.low), number(i.high)});
}

ordered_json number(const MeanEstimate& m) {
  return {{"n", m.n},
          {"mean", number(m.mean)},
          {"sd", number(m.sd)},
          {"se", number(m.se)},
          {"interval", number(m.interval)}};
}

ordered_json number(const std::vector<std::pair<std::string, MeanEstimate>>& named) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, estimate] : named) out[name] = number(estimate);
  return out;
}

template <class T>
ordered_json number(const std::optional<T>& v) {
  return v ? number(*v) : ordered_json(nullptr);
}

ordered_json metric_json(const PairedMetric& m) {
  return {{"metric", m.metric},
          {"lower_is_better", m.lower_is_better},
          {"baseline", numbers(m.baseline)},
          {"other", numbers(m.other)},
          {"differences", numbers(m.differences)},
          {"baseline_mean", number(m.baseline_mean)},
          {"other_mean", number(m.other_mean)},
          {"difference", number(m.difference)},
          {"hodges_lehmann", number(m.hodges_lehmann)},
          {"relative_change", number(m.relative_change)},
          {"correlation", number(m.correlation)},
          {"other_better", m.other_better},
          {"ties", m.ties},
          {"t", number(m.t_test.t)},
          {"p_t", number(m.t_test.p)},
          {"p_sign_flip", number(m.sign_flip.p)},
          {"sign_flip_exact", m.sign_flip.exact},
          {"sign_flip_patterns", m.sign_flip.patterns},
          {"p_adjusted", number(m.adjusted_p)}};
}

ordered_json survival_json(const SurvivalEstimate& s, const std::vector<Observation>& runs,
                           const MlperfMean& mlperf) {
  ordered_json observations = ordered_json::array();
  for (const Observation& o : runs)
    observations.push_back({{"time", number(o.time)}, {"reached", o.reached}});
  ordered_json steps = ordered_json::array();
  for (const SurvivalStep& step : s.steps) {
    steps.push_back({{"time", number(step.time)},
                     {"at_risk", step.at_risk},
                     {"events", step.events},
                     {"survival", number(step.survival)},
                     {"interval", number(step.interval)}});
  }
  return {{"runs", observations},
          {"reached", s.reached},
          {"kaplan_meier", steps},
          {"median", number(s.median)},
          {"median_interval", ordered_json::array({number(s.median_low), number(s.median_high)})},
          {"horizon", number(s.horizon)},
          {"restricted_mean", number(s.restricted_mean)},
          {"restricted_mean_se", number(s.restricted_mean_se)},
          {"restricted_mean_interval", number(s.restricted_mean_interval)},
          {"mlperf_mean", number(mlperf.mean)},
          {"mlperf_runs_used", mlperf.used},
          {"mlperf_why_not", mlperf.why}};
}

ordered_json target_json(const TargetComparison& t) {
  return {{"axis", axis_name(t.axis)},
          {"baseline", survival_json(t.baseline_estimate, t.baseline, t.baseline_mlperf)},
          {"other", survival_json(t.other_estimate, t.other, t.other_mlperf)},
          {"restricted_mean_difference", number(t.restricted_mean_difference)},
          {"restricted_mean_difference_interval", number(t.restricted_mean_interval)},
          {"log_rank_chi_square", number(t.log_rank.chi_square)},
          {"log_rank_p", number(t.log_rank.p)}};
}

ordered_json verdict_json(const Verdict& v) {
  return {{"outcome", outcome_name(v.outcome)}, {"headline", v.headline}, {"sentences", v.sentences}};
}

ordered_json difference_curve_json(const StudyResult& result, const Comparison& c) {
  const Study& s = result.study;
  ordered_json out = ordered_json::array();
  const Axis axis = s.experiment.budget.kind;
  for (const EstimatePoint& p :
       difference_curve(series_of(s.arms[0], c.primary.metric), series_of(s.arms[c.other], c.primary.metric),
                        axis, s.experiment.alpha)) {
    out.push_back({{axis_name(axis), number(p.x)},
                   {"mean", number(p.y.mean)},
                   {"interval", number(p.y.interval)},
                   {"sd", number(p.y.sd)}});
  }
  return out;
}

ordered_json sequential_json(const SequentialResult& s) {
  static constexpr const char* kConclusions[] = {"none", "greater", "less", "equivalent"};
  ordered_json looks = ordered_json::array();
  for (const Evidence& e : s.course.looks) {
    looks.push_back({{"pairs", e.pairs},
                     {"mean", number(e.mean)},
                     {"confidence_sequence", number(e.interval)},
                     {"log_e", number(e.log_e)},
                     {"direction", e.greater ? "greater" : "less"},
                     {"log_e_above_low", number(e.log_e_above)},
                     {"log_e_below_high", number(e.log_e_below)}});
  }
  return {{"alpha", s.alpha},
          {"needed_log_e", -std::log(s.alpha)},
          {"conclusion", kConclusions[static_cast<int>(s.course.conclusion)]},
          {"futile", s.course.futile},
          {"chance_of_conclusion", number(s.course.chance)},
          {"pairs_to_conclude", s.needed ? ordered_json(*s.needed) : ordered_json(nullptr)},
          {"looks", looks}};
}

ordered_json comparison_json(const StudyResult& result, const Comparison& c) {
  ordered_json out = {{"baseline", result.study.arms[0].arm.name},
                      {"other", result.study.arms[c.other].arm.name},
                      {"verdict", verdict_json(c.verdict)},
                      {"seeds", c.seeds},
                      {"primary", metric_json(c.primary)},
                      {"smallest_sign_flip_p", number(c.smallest_sign_flip_p)},
                      {"minimum_detectable_effect",
                       {{"paired_sd", number(c.detectable_sd)},
                        {"metric", number(c.detectable_effect)},
                        {"power", result.study.experiment.power}}},
                      {"same_weights", c.same_weights},
                      {"equivalence", nullptr}};
  if (c.equivalence) {
    const EquivalenceTest& e = *c.equivalence;
    out["equivalence"] = {{"margin", number(e.margin)},
                          {"p_above_low", number(e.p_above_low)},
                          {"p_below_high", number(e.p_below_high)},
                          {"p", number(e.p)},
                          {"p_adjusted", number(c.adjusted_equivalence_p)},
                          {"interval", number(e.interval)}};
  }
  out["at_the_baselines_setting"] = c.untuned ? metric_json(*c.untuned) : ordered_json(nullptr);
  out["sequential"] = c.sequential ? sequential_json(*c.sequential) : ordered_json(nullptr);
  out["time_to_target"] = ordered_json::array();
  for (const TargetComparison& t : c.targets) out["time_to_target"].push_back(target_json(t));
  out["log_rank_p_adjusted"] = number(c.adjusted_log_rank_p);
  out["secondary"] = ordered_json::array();
  for (const PairedMetric& m : c.secondary) out["secondary"].push_back(metric_json(m));
  out["skipped_metrics"] = c.skipped_metrics;
  out["difference_curve"] = difference_curve_json(result, c);
  return out;
}

ordered_json contrast_json(const Comparison& c, const Experiment& e) {
  ordered_json out = metric_json(c.primary);
  out["minimum_detectable_effect"] = {
      {"paired_sd", number(c.detectable_sd)}, {"metric", number(c.detectable_effect)}, {"power", e.power}};
  out["equivalence"] = nullptr;
  if (c.equivalence) {
    out["equivalence"] = {{"margin", number(c.equivalence->margin)},
                          {"p", number(c.equivalence->p)},
                          {"p_adjusted", number(c.adjusted_equivalence_p)},
                          {"interval", number(c.equivalence->interval)}};
  }
  return out;
}

ordered_json main_effect_json(const MainEffect& effect, const Experiment& e) {
  const Factor& factor = e.factors[effect.factor];
  ordered_json alone = contrast_json(effect.one_at_a_time, e);
  alone["verdict"] = verdict_json(effect.one_at_a_time.verdict);
  alone["minus_main_effect"] = number(effect.gap);
  alone["misleads"] = effect.misleads;
  alone["sentence"] = effect.sentence;
  return {{"factor", factor.name},
          {"level", factor.levels[effect.level].name},
          {"against", factor.levels[0].name},
          {"verdict", verdict_json(effect.contrast.verdict)},
          {"caution", effect.caution},
          {"contrast", contrast_json(effect.contrast, e)},
          {"one_at_a_time", alone}};
}

ordered_json interaction_json(const Interaction& i, const Experiment& e) {
  const Factor& first = e.factors[i.first];
  const Factor& second = e.factors[i.second];
  return {{"factors", {first.name, second.name}},
          {"levels", {first.levels[i.first_level].name, second.levels[i.second_level].name}},
          {"against", {first.levels[0].name, second.levels[0].name}},
          {"verdict", reading_name(i.reading)},
          {"sentence", i.sentence},
          {"contrast", contrast_json(i.contrast, e)}};
}

ordered_json effects_json(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  const FactorialResult& f = *result.factorial;
  ordered_json cells = ordered_json::array(), main = ordered_json::array(),
               interactions = ordered_json::array(), left_out = ordered_json::array();
  for (std::size_t cell = 0; cell < f.cells.size(); ++cell) {
    const std::vector<std::size_t> levels = levels_of_cell(e.factors, cell);
    ordered_json named = ordered_json::object();
    for (std::size_t k = 0; k < levels.size(); ++k)
      named[e.factors[k].name] = e.factors[k].levels[levels[k]].name;
    cells.push_back({{"arm", e.arms[cell].name},
                     {"levels", named},
                     {"values", numbers(f.values[cell])},
                     {"mean", number(f.cells[cell])}});
  }
  for (const MainEffect& effect : f.main) main.push_back(main_effect_json(effect, e));
  for (const Interaction& i : f.interactions) interactions.push_back(interaction_json(i, e));
  for (const LeftOutSeed& seed : result.study.left_out)
    left_out.push_back({{"seed", seed.seed}, {"why", seed.why}});
  return {{"verdict", verdict_json(f.verdict)}, {"seeds", e.seeds}, {"left_out", left_out},
          {"adjusted_over", f.contrasts()},     {"cells", cells},   {"main", main},
          {"interactions", interactions}};
}

ordered_json run_json(const Study& study, const RunRecord& run, std::int64_t seed) {
  ordered_json metrics = ordered_json::object();
  for (const auto& [name, value] : run.final_metrics) metrics[name] = number(value);
  ordered_json manifest = ordered_json::object();
  for (const auto& [key, value] : run.manifest) manifest[key] = value;
  ordered_json lock = ordered_json::object();
  for (const auto& [key, value] : run.plugins_lock) lock[key] = value;
  return {
      {"seed", seed},
      {"attempt", run.attempt},
      {"folder", run.folder},
      {"status", run.status},
      {"steps", number(run.steps)},
      {"samples", number(run.samples)},
      {"tokens", number(run.tokens)},
      {"wall_s", study.wall_clock_valid() ? number(run.wall_s) : ordered_json(nullptr)},
      {"bytes_sent", number(run.bytes_sent)},
      {"bytes_by_purpose", run.bytes_by_purpose},
      {"quantized_operands", run.quantized_operands},
      {"peak_rss_mb", number(run.peak_rss_mb)},
      {"stall_s", study.wall_clock_valid() ? number(run.stall_s) : ordered_json(nullptr)},
      {"hidden_comm_share", study.wall_clock_valid() ? number(run.hidden_comm_share) : ordered_json(nullptr)},
      {"exposed_comm_s", study.wall_clock_valid() ? number(run.exposed_comm_s) : ordered_json(nullptr)},
      {"late_s", study.wall_clock_valid() ? number(run.late_s) : ordered_json(nullptr)},
      {"metrics", metrics},
      {"weights_hash", run.weights_hash},
      {"state_hash", run.state_hash},
      {"manifest", manifest},
      {"plugins_lock", lock}};
}

ordered_json cost_json(const ArmCost& c) {
  return {{"samples_per_s", number(c.samples_per_s)},
          {"tokens_per_s", number(c.tokens_per_s)},
          {"wall_s", number(c.wall_s)},
          {"stall_s", number(c.stall_s)},
          {"bytes_sent", number(c.bytes_sent)},
          {"peak_rss_mb", number(c.peak_rss_mb)},
          {"hidden_comm_share", number(c.hidden_comm_share)},
          {"exposed_comm_s", number(c.exposed_comm_s)},
          {"late_s", number(c.late_s)},
          {"bytes_by_purpose", number(c.bytes_by_purpose)},
          {"quantized_operands", number(c.quantized_operands)}};
}

ordered_json rule_json(const SequentialRule& rule) {
  return {{"max_seeds", rule.max_seeds},
          {"first_look", rule.first_look},
          {"block", rule.block},
          {"method", kSequentialMethods.name(rule.method)},
          {"futility", number(rule.futility)}};
}

ordered_json key_json(const TunedKey& key) {
  return {{"name", key.name},     {"from", key.from},
          {"to", key.to},         {"scale", kTuneScales.name(key.scale)},
          {"whole", key.whole},   {"hard_ends", kHardEnds.name(key.hard)},
          {"values", key.values}, {"choices", key.choices},
          {"only", key.only}};
}

ordered_json budget_json(const Budget& budget) {
  return {{"kind", axis_name(budget.kind)}, {"amount", budget.amount}};
}

ordered_json tune_json(const TuneRule& rule) {
  ordered_json keys = ordered_json::array();
  for (const TunedKey& key : rule.keys) keys.push_back(key_json(key));
  return {{"keys", keys},
          {"trials", rule.trials},
          {"seeds", rule.seeds},
          {"budget", rule.budget ? budget_json(*rule.budget) : ordered_json(nullptr)},
          {"arms", kTuneArms.name(rule.arms)},
          {"on_failure", kTuneFailures.name(rule.failure)}};
}

ordered_json ladder_rule_json(const LadderRule& rule) {
  ordered_json points = ordered_json::array();
  for (const LadderPoint& p : rule.points)
    points.push_back({{"name", p.name}, {"set", p.set}, {"steps", p.steps}, {"size", number(p.size)}});
  return {{"points", points},
          {"held_out", rule.held_out},
          {"samples_per_parameter", number(rule.samples_per_parameter)},
          {"tokens_per_parameter", number(rule.tokens_per_parameter)}};
}

std::optional<double> optional_of(const ordered_json& j) {
  return j.is_null() ? std::optional<double>() : std::optional<double>(j.get<double>());
}

LadderRule ladder_of(const ordered_json& j) {
  LadderRule rule;
  for (const ordered_json& p : j.at("points")) {
    rule.points.push_back({.name = p.at("name"),
                           .set = p.at("set").get<std::vector<std::string>>(),
                           .steps = p.at("steps"),
                           .size = optional_of(p.at("size"))});
  }
  rule.held_out = j.at("held_out");
  rule.samples_per_parameter = optional_of(j.at("samples_per_parameter"));
  rule.tokens_per_parameter = optional_of(j.at("tokens_per_parameter"));
  return rule;
}

Budget budget_of(const ordered_json& j) {
  return {axis_from_name(j.at("kind")), j.at("amount")};
}

TuneRule tune_of(const ordered_json& j) {
  TuneRule rule;
  for (const ordered_json& key : j.at("keys")) {
    rule.keys.push_back(
        {key.at("name"), key.at("from"), key.at("to"), kTuneScales.of(key.at("scale").get<std::string>()),
         key.at("whole"), kHardEnds.of(key.at("hard_ends").get<std::string>()),
         key.at("values").get<std::vector<double>>(), key.at("choices").get<std::vector<std::string>>(),
         key.at("only").get<std::vector<std::string>>()});
  }
  rule.trials = j.at("trials");
  rule.seeds = j.at("seeds").get<std::vector<std::int64_t>>();
  if (!j.at("budget").is_null()) rule.budget = budget_of(j.at("budget"));
  rule.arms = kTuneArms.of(j.at("arms").get<std::string>());
  rule.failure = kTuneFailures.of(j.at("on_failure").get<std::string>());
  return rule;
}

ordered_json factors_json(const std::vector<Factor>& factors) {
  ordered_json out = ordered_json::array();
  for (const Factor& factor : factors) {
    ordered_json levels = ordered_json::array();
    for (const FactorLevel& level : factor.levels)
      levels.push_back({{"name", level.name}, {"set", level.set}});
    out.push_back({{"name", factor.name}, {"levels", levels}});
  }
  return out;
}

std::vector<Factor> factors_of(const ordered_json& j) {
  std::vector<Factor> out;
  for (const ordered_json& factor : j) {
    out.push_back({factor.at("name"), {}});
    for (const ordered_json& level : factor.at("levels"))
      out.back().levels.push_back({level.at("name"), level.at("set").get<std::vector<std::string>>()});
  }
  return out;
}

ordered_json family_json(const FamilyShare& f) {
  return {{"ledger", f.ledger}, {"family", f.family},           {"question", f.question},
          {"alpha", f.alpha},   {"discoveries", f.discoveries}, {"rule", kLevelRules.name(f.rule)}};
}

ordered_json experiment_json(const Experiment& e) {
  ordered_json arms = ordered_json::array();
  for (const Arm& arm : e.arms) {
    arms.push_back(
        {{"name", arm.name}, {"extends", arm.extends}, {"set", arm.set}, {"own_order", arm.own_order}});
  }
  ordered_json out{{"name", e.name},
                   {"path", e.path},
                   {"question", e.question},
                   {"base", e.base},
                   {"seeds", e.seeds},
                   {"budget", budget_json(e.budget)},
                   {"arms", arms},
                   {"metric", e.metric},
                   {"lower_is_better", e.lower_is_better},
                   {"secondary", e.secondary},
                   {"margin", number(e.margin)},
                   {"target", number(e.target)},
                   {"decide_by", kDecideBy.name(e.decide_by)},
                   {"test", kTests.name(e.test)},
                   {"alpha", e.alpha},
                   {"power", e.power},
                   {"sequential", e.sequential ? rule_json(*e.sequential) : ordered_json(nullptr)},
                   {"tune", e.tune ? tune_json(*e.tune) : ordered_json(nullptr)}};
  // Only where there are any: the digests of plans of sequential studies are those of this text.
  if (!e.factors.empty()) out["factors"] = factors_json(e.factors);
  if (e.ladder) out["ladder"] = ladder_rule_json(*e.ladder);
  if (e.family) out["family"] = family_json(*e.family);
  return out;
}

Experiment experiment_of(const ordered_json& j) {
  const auto optional = [&](const char* key) {
    return j.at(key).is_null() ? std::optional<double>() : std::optional<double>(j.at(key).get<double>());
  };
  Experiment e;
  e.name = j.at("name");
  e.path = j.at("path");
  e.question = j.at("question");
  e.base = j.at("base");
  e.seeds = j.at("seeds").get<std::vector<std::int64_t>>();
  e.budget = budget_of(j.at("budget"));
  for (const ordered_json& arm : j.at("arms")) {
    e.arms.push_back({arm.at("name"), arm.at("extends"), arm.at("set"), arm.at("own_order")});
  }
  e.metric = j.at("metric");
  e.lower_is_better = j.at("lower_is_better");
  e.secondary = j.at("secondary").get<std::vector<std::string>>();
  e.margin = optional("margin");
  e.target = optional("target");
  e.decide_by = kDecideBy.of(j.at("decide_by").get<std::string>());
  e.test = kTests.of(j.at("test").get<std::string>());
  e.alpha = j.at("alpha");
  e.power = j.at("power");
  // Absent in records of studies from before there was one.
  if (j.contains("sequential") && !j.at("sequential").is_null()) {
    const ordered_json& s = j.at("sequential");
    SequentialRule rule{s.at("max_seeds"), s.at("first_look"), s.at("block"),
                        kSequentialMethods.of(s.at("method").get<std::string>()), std::nullopt};
    if (!s.at("futility").is_null()) rule.futility = s.at("futility").get<double>();
    e.sequential = rule;
  }
  if (j.contains("tune") && !j.at("tune").is_null()) e.tune = tune_of(j.at("tune"));
  if (j.contains("factors")) e.factors = factors_of(j.at("factors"));
  if (j.contains("ladder")) e.ladder = ladder_of(j.at("ladder"));
  if (j.contains("family")) {
    const ordered_json& f = j.at("family");
    e.family = {f.at("ledger"), f.at("family"),      f.at("question"),
                f.at("alpha"),  f.at("discoveries"), kLevelRules.of(f.at("rule").get<std::string>())};
  }
  return e;
}

// Text from configurations and manifests may be any bytes; a report must not fail on them.
std::string dump(const ordered_json& value) {
  return value.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string report_json(const StudyResult& result) {
  const Study& s = result.study;
  ordered_json arms = ordered_json::array();
  for (std::size_t a = 0; a < s.arms.size(); ++a) {
    ordered_json runs = ordered_json::array();
    for (std::size_t i = 0; i < s.arms[a].runs.size(); ++i) {
      const auto& run = s.arms[a].runs[i];
      if (run) runs.push_back(run_json(s, *run, s.experiment.seeds[i]));
    }
    arms.push_back({{"name", s.arms[a].arm.name}, {"runs", runs}, {"cost", cost_json(result.costs[a])}});
  }
  ordered_json config = ordered_json::object();
  for (const ConfigRow& row : s.config_difference) {
    ordered_json values = ordered_json::object();
    for (std::size_t a = 0; a < s.arms.size(); ++a) {
      values[s.arms[a].arm.name] =
          row.values[a].empty() ? ordered_json(nullptr) : ordered_json(row.values[a]);
    }
    config[row.key] = values;
  }
  ordered_json comparisons = ordered_json::array();
  for (const Comparison& c : result.comparisons) comparisons.push_back(comparison_json(result, c));
  ordered_json family = nullptr;
  if (s.experiment.family) {
    family = family_json(*s.experiment.family);
    family["level"] = s.experiment.alpha;
    family["discovery"] = is_discovery(result);
  }
  ordered_json out = {
      {"format", "tenon.ab.report/1"},
      {"experiment", experiment_json(s.experiment)},
      {"jobs", s.jobs},
      {"wall_clock_valid", s.wall_clock_valid()},
      {"verdict", verdict_json(result.verdict())},
      {"p_values", s.experiment.sequential
                       ? "for a fixed number of pairs; not valid here, because the study looked at "
                         "its pairs as they came"
                       : "for the number of pairs fixed beforehand"},
      {"family", family},
      {"tuning", s.tuning ? ordered_json::parse(tuning_json(*s.tuning)) : ordered_json(nullptr)},
      {"refusals", s.refusals},
      {"notes", s.notes},
      {"config_difference", config},
      {"effects", result.factorial ? effects_json(result) : ordered_json(nullptr)},
      {"comparisons", comparisons},
      {"self_check", nullptr},
      {"arms", arms}};
  if (result.self_check) {
    const SelfCheck& c = *result.self_check;
    out["self_check"] = {{"relabellings", c.relabellings},
                         {"rate_t", number(c.rate_t)},
                         {"rate_sign_flip", number(c.rate_sign_flip)},
                         {"metrics", c.metrics},
                         {"metrics_rejected", c.metrics_rejected}};
  }
  return dump(out);
}

std::string study_record_json(const StudyRecord& record) {
  return dump({{"format", "tenon.ab.experiment/1"},
               {"experiment", experiment_json(record.experiment)},
               {"jobs", record.jobs},
               {"self_check", record.self_check}});
}

StudyRecord parse_study_record(const std::string& text, const std::string& where) {
  try {
    const ordered_json value = ordered_json::parse(text);
    StudyRecord record{experiment_of(value.at("experiment")), value.at("jobs"), value.at("self_check")};
    validate(record.experiment);
    return record;
  } catch (const std::exception& error) {
    fail_run(fmt::format("{}: not a record of a study: {}", where, error.what()));
  }
}

}  // namespace tenon::ab
