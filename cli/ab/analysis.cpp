// From paired runs to numbers, then the rule of decision and its texts; see analysis.hpp.
#include "ab/analysis.hpp"

#include "ab/factorial.hpp"
#include "ab/family.hpp"
#include "ab/format.hpp"

#include <tenon/error.hpp>

#include <Random123/philox.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

namespace tenon::ab {
namespace {

constexpr std::size_t kExhaustiveRelabelling = 12;
constexpr std::uint64_t kSampledRelabellings = 4096;

std::vector<std::string> secondary_metrics(const Study& study) {
  if (!study.experiment.secondary.empty()) return study.experiment.secondary;
  static constexpr std::string_view kQuality[] = {"loss", "accuracy", "auc", "relative_l2"};
  std::set<std::string> names;
  for (const ArmRuns& arm : study.arms) {
    for (const auto& run : arm.runs) {
      if (!run) continue;
      for (const auto& [name, value] : run->final_metrics) {
        const std::string_view last = std::string_view(name).substr(name.rfind('/') + 1);
        if (std::find(std::begin(kQuality), std::end(kQuality), last) != std::end(kQuality))
          names.insert(name);
      }
    }
  }
  names.erase(study.experiment.metric);
  return {names.begin(), names.end()};
}

// Final values of one arm over the seeds; empty with a reason if one is missing or not finite.
std::optional<std::vector<double>> final_values(const ArmRuns& arm, std::size_t pairs,
                                                const std::string& metric, std::string& why) {
  std::vector<double> out;
  for (std::size_t s = 0; s < pairs; ++s) {
    const std::optional<RunRecord>& run = arm.runs[s];
    const std::optional<double> value = run->final_value(metric);
    if (!value || !std::isfinite(*value)) {
      why = fmt::format("{}: {} in {}", metric, value ? "not finite" : "not recorded", run->folder);
      return std::nullopt;
    }
    out.push_back(*value);
  }
  return out;
}

bool all_weights_equal(const ArmRuns& a, const ArmRuns& b) {
  for (std::size_t s = 0; s < b.runs.size(); ++s) {
    if (a.runs[s]->weights_hash.empty() || a.runs[s]->weights_hash != b.runs[s]->weights_hash) return false;
  }
  return !b.runs.empty();
}

double horizon_of(std::span<const Observation> a, std::span<const Observation> b) {
  // The restricted mean is defined up to the shortest complete follow-up of the two arms.
  double ends[2] = {0, 0};
  for (const Observation& o : a) ends[0] = std::max(ends[0], o.time);
  for (const Observation& o : b) ends[1] = std::max(ends[1], o.time);
  const auto censored = [](const Observation& o) { return !o.reached; };
  const bool open_a = std::any_of(a.begin(), a.end(), censored);
  const bool open_b = std::any_of(b.begin(), b.end(), censored);
  if (open_a && open_b) return std::min(ends[0], ends[1]);
  if (open_a) return ends[0];
  if (open_b) return ends[1];
  return std::max(ends[0], ends[1]);
}

TargetComparison compare_target(const Study& study, const ArmRuns& a, const ArmRuns& b, Axis axis) {
  const Experiment& e = study.experiment;
  TargetComparison out;
  out.axis = axis;
  for (std::size_t s = 0; s < b.runs.size(); ++s) {
    out.baseline.push_back(
        time_to_target(a.runs[s]->series.at(e.metric), *e.target, e.lower_is_better, axis));
    out.other.push_back(time_to_target(b.runs[s]->series.at(e.metric), *e.target, e.lower_is_better, axis));
  }
  const double horizon = horizon_of(out.baseline, out.other);
  out.baseline_estimate = kaplan_meier(out.baseline, horizon, e.alpha);
  out.other_estimate = kaplan_meier(out.other, horizon, e.alpha);
  out.log_rank = log_rank_test(out.baseline, out.other);
  const SurvivalEstimate& x = out.baseline_estimate;
  const SurvivalEstimate& y = out.other_estimate;
  out.restricted_mean_difference = y.restricted_mean - x.restricted_mean;
  const double se = std::hypot(x.restricted_mean_se, y.restricted_mean_se);
  out.restricted_mean_interval = normal_interval(out.restricted_mean_difference, se, e.alpha);
  out.baseline_mlperf = mlperf_mean(out.baseline);
  out.other_mlperf = mlperf_mean(out.other);
  return out;
}

Comparison compare_arms(const Study& study, std::size_t other) {
  const Experiment& e = study.experiment;
  const ArmRuns& a = study.arms[0];
  const ArmRuns& b = study.arms[other];
  const std::size_t n = b.runs.size();
  std::string why;
  Comparison out = compare_values(e, *final_values(a, n, e.metric, why), *final_values(b, n, e.metric, why),
                                  minimum_detectable_effect(n, e.power, e.alpha));
  out.other = other;
  out.seeds.assign(e.seeds.begin(), e.seeds.begin() + static_cast<std::ptrdiff_t>(n));
  out.same_weights = all_weights_equal(a, b);
  if (e.target) {
    for (Axis axis : usable_axes(study, e.metric)) out.targets.push_back(compare_target(study, a, b, axis));
  }
  for (const std::string& metric : secondary_metrics(study)) {
    const auto left = final_values(a, n, metric, why);
    const auto right = left ? final_values(b, n, metric, why) : std::nullopt;
    if (left && right) {
      out.secondary.push_back(compare_metric(metric, lower_is_better(metric), *left, *right, e.alpha));
    } else {
      out.skipped_metrics.push_back(why);
    }
  }
  return out;
}

// Families: the primary question over arms; all secondary metrics of all arms together.
void adjust(StudyResult& result) {
  const Experiment& e = result.study.experiment;
  std::vector<double> primary, equivalence, log_rank, secondary;
  for (const Comparison& c : result.comparisons) {
    primary.push_back(deciding_p(e, c.primary));
    equivalence.push_back(c.equivalence ? c.equivalence->p : 1.0);
    const TargetComparison* target = target_on(c, e.budget.kind);
    log_rank.push_back(target != nullptr ? target->log_rank.p : 1.0);
    for (const PairedMetric& m : c.secondary) secondary.push_back(deciding_p(e, m));
  }
  primary = holm_adjust(primary);
  equivalence = holm_adjust(equivalence);
  log_rank = holm_adjust(log_rank);
  secondary = holm_adjust(secondary);
  std::size_t next = 0;
  for (std::size_t i = 0; i < result.comparisons.size(); ++i) {
    Comparison& c = result.comparisons[i];
    c.primary.adjusted_p = primary[i];
    c.adjusted_equivalence_p = equivalence[i];
    c.adjusted_log_rank_p = log_rank[i];
    for (PairedMetric& m : c.secondary) m.adjusted_p = secondary[next++];
  }
}

using Reading = std::function<std::optional<double>(const RunRecord&)>;

std::optional<MeanEstimate> over_runs(const ArmRuns& arm, double alpha, const Reading& read) {
  std::vector<double> values;
  for (const auto& run : arm.runs) {
    if (!run || run->status != "completed") continue;
    const std::optional<double> value = read(*run);
    if (value && std::isfinite(*value)) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  return mean_with_interval(values, alpha);
}

std::optional<double> rate(double amount, double seconds) {
  if (amount > 0 && seconds > 0) return amount / seconds;
  return std::nullopt;
}

std::vector<std::pair<std::string, MeanEstimate>> by_name(const ArmRuns& arm, double alpha,
                                                          std::map<std::string, double> RunRecord::*member) {
  std::set<std::string> names;
  for (const auto& run : arm.runs) {
    if (!run) continue;
    for (const auto& entry : (*run).*member) names.insert(entry.first);
  }
  std::vector<std::pair<std::string, MeanEstimate>> out;
  for (const std::string& name : names) {
    const auto estimate = over_runs(arm, alpha, [&](const RunRecord& run) -> std::optional<double> {
      const auto found = (run.*member).find(name);
      return found == (run.*member).end() ? 0.0 : found->second;
    });
    if (estimate) out.emplace_back(name, *estimate);
  }
  return out;
}

ArmCost cost_of(const Study& study, const ArmRuns& arm) {
  const double alpha = study.experiment.alpha;
  ArmCost out;
  if (study.wall_clock_valid()) {
    out.samples_per_s = over_runs(arm, alpha, [](const RunRecord& r) { return rate(r.samples, r.wall_s); });
    out.tokens_per_s = over_runs(arm, alpha, [](const RunRecord& r) { return rate(r.tokens, r.wall_s); });
    out.wall_s = over_runs(arm, alpha, [](const RunRecord& r) { return r.wall_s; });
    out.stall_s = over_runs(arm, alpha, [](const RunRecord& r) { return r.stall_s; });
    out.hidden_comm_share = over_runs(arm, alpha, [](const RunRecord& r) { return r.hidden_comm_share; });
    out.exposed_comm_s = over_runs(arm, alpha, [](const RunRecord& r) { return r.exposed_comm_s; });
    out.late_s = over_runs(arm, alpha, [](const RunRecord& r) { return r.late_s; });
  }
  out.bytes_sent = over_runs(arm, alpha, [](const RunRecord& r) { return r.bytes_sent; });
  out.peak_rss_mb = over_runs(arm, alpha, [](const RunRecord& r) { return r.peak_rss_mb; });
  out.bytes_by_purpose = by_name(arm, alpha, &RunRecord::bytes_by_purpose);
  out.quantized_operands = by_name(arm, alpha, &RunRecord::quantized_operands);
  return out;
}

}  // namespace

DecidingTest deciding_test(const Experiment& experiment, const PairedMetric& metric) {
  return metric.t_test.defined() ? experiment.test : DecidingTest::kSignFlip;
}

double deciding_p(const Experiment& experiment, const PairedMetric& metric) {
  return deciding_test(experiment, metric) == DecidingTest::kStudentT ? metric.t_test.p : metric.sign_flip.p;
}

const TargetComparison* target_on(const Comparison& comparison, Axis axis) {
  for (const TargetComparison& t : comparison.targets) {
    if (t.axis == axis) return &t;
  }
  return nullptr;
}

PairedMetric compare_metric(const std::string& metric, bool lower_is_better, std::vector<double> baseline,
                            std::vector<double> other, double alpha) {
  PairedMetric out;
  out.metric = metric;
  out.lower_is_better = lower_is_better;
  for (std::size_t i = 0; i < baseline.size(); ++i) {
    const double d = other[i] - baseline[i];
    out.differences.push_back(d);
    out.ties += d == 0;
    out.other_better += lower_is_better ? d < 0 : d > 0;
  }
  out.baseline_mean = mean_with_interval(baseline, alpha);
  out.other_mean = mean_with_interval(other, alpha);
  out.difference = mean_with_interval(out.differences, alpha);
  out.t_test = paired_t_test(out.differences);
  out.sign_flip = sign_flip_test(out.differences);
  out.hodges_lehmann = hodges_lehmann(out.differences);
  out.correlation = correlation(baseline, other);
  const Interval& base = out.baseline_mean.interval;
  if (base.low > 0 || base.high < 0)
    out.relative_change = out.difference.mean / std::abs(out.baseline_mean.mean);
  out.baseline = std::move(baseline);
  out.other = std::move(other);
  out.adjusted_p = out.t_test.defined() ? out.t_test.p : out.sign_flip.p;
  return out;
}

Comparison compare_values(const Experiment& e, std::vector<double> baseline, std::vector<double> other,
                          double detectable_sd) {
  const std::size_t n = baseline.size();
  Comparison out;
  out.primary = compare_metric(e.metric, e.lower_is_better, std::move(baseline), std::move(other), e.alpha);
  if (e.margin) out.equivalence = equivalence_test(out.primary.differences, *e.margin, e.alpha);
  out.smallest_sign_flip_p = smallest_sign_flip_p(n);
  out.detectable_sd = detectable_sd;
  out.detectable_effect = n < 2 ? out.detectable_sd : out.detectable_sd * out.primary.difference.sd;
  return out;
}

Observation time_to_target(const Series& series, double target, bool lower_is_better, Axis axis) {
  for (const MetricPoint& p : series) {
    if (lower_is_better ? p.value <= target : p.value >= target) return {p.at(axis), true};
  }
  return {series.empty() ? 0.0 : series.back().at(axis), false};
}

std::vector<Axis> usable_axes(const Study& study, const std::string& metric) {
  std::vector<Axis> out;
  for (Axis axis : kAxes) {
    if (axis == Axis::kSeconds && !study.wall_clock_valid()) continue;
    bool usable = true;
    bool any = false;
    for (const ArmRuns& arm : study.arms) {
      for (const auto& run : arm.runs) {
        if (!run) continue;
        const auto found = run->series.find(metric);
        const bool grows =
            found != run->series.end() && !found->second.empty() && found->second.back().at(axis) > 0;
        usable = usable && grows;
        any = true;
      }
    }
    if (usable && any) out.push_back(axis);
  }
  return out;
}

SelfCheck check_against_itself(const Comparison& comparison, double alpha) {
  const std::vector<double>& differences = comparison.primary.differences;
  const std::size_t n = differences.size();
  SelfCheck out;
  const bool exhaustive = n <= kExhaustiveRelabelling;
  out.relabellings = exhaustive ? std::uint64_t{1} << n : kSampledRelabellings;
  std::uint64_t rejected_t = 0;
  std::uint64_t rejected_sign_flip = 0;
  r123::Philox4x32 philox;
  // For many pairs only the t test is tried: the sign-flip test keeps its level by construction and costs
  // 2^(n/2) each.
  for (std::uint64_t i = 0; i < out.relabellings; ++i) {
    std::vector<double> flipped = differences;
    r123::Philox4x32::ctr_type bits{};
    for (std::size_t k = 0; k < n; ++k) {
      if (k % 128 == 0) {
        bits = philox({{static_cast<std::uint32_t>(i), 0u, static_cast<std::uint32_t>(k / 128), 1u}},
                      {{0xa4u, 0xa4u}});
      }
      const bool flip = exhaustive ? (i >> k) & 1u : (bits[(k % 128) / 32] >> (k % 32)) & 1u;
      if (flip) flipped[k] = -flipped[k];
    }
    rejected_t += paired_t_test(flipped).p <= alpha;
    rejected_sign_flip += exhaustive && sign_flip_test(flipped).p <= alpha;
  }
  const double total = static_cast<double>(out.relabellings);
  out.rate_t = static_cast<double>(rejected_t) / total;
  out.rate_sign_flip = exhaustive ? static_cast<double>(rejected_sign_flip) / total : std::nan("");
  out.metrics = 1 + comparison.secondary.size();
  out.metrics_rejected = comparison.primary.t_test.p <= alpha;
  for (const PairedMetric& m : comparison.secondary) out.metrics_rejected += m.t_test.p <= alpha;
  return out;
}

SequentialCourse course_of(const Study& study, std::size_t other) {
  const Experiment& e = study.experiment;
  const std::size_t n = study.arms[other].runs.size();
  std::string why;
  const auto left = final_values(study.arms[0], n, e.metric, why);
  const auto right = final_values(study.arms[other], n, e.metric, why);
  if (!left || !right) fail_run("a look needs the final value of every run; " + why);
  std::vector<double> differences;
  for (std::size_t s = 0; s < n; ++s) differences.push_back((*right)[s] - (*left)[s]);
  return follow(differences, *e.sequential, e.margin, alpha_of_arm(e.alpha, e.arms.size()), n);
}

bool left_the_race(const Study& study, std::size_t other, const SequentialCourse& course) {
  return course.ended(*study.experiment.sequential) ||
         (course.pairs > 0 && all_weights_equal(study.arms[0], study.arms[other]));
}

namespace {

void add_looks(const Study& study, Comparison& c) {
  const Experiment& e = study.experiment;
  SequentialResult out;
  out.course = course_of(study, c.other);
  out.alpha = alpha_of_arm(e.alpha, e.arms.size());
  out.arms = e.arms.size();
  if (out.course.conclusion == Conclusion::kNone) {
    out.needed =
        pairs_to_conclude(c.primary.differences, e.sequential->method, e.margin, out.alpha, kFarthestPairs);
  }
  c.sequential = std::move(out);
}

}  // namespace

StudyResult analyse(Study study) {
  StudyResult result;
  result.study = std::move(study);
  const Study& s = result.study;
  for (const ArmRuns& arm : s.arms) result.costs.push_back(cost_of(s, arm));
  if (!s.refusals.empty()) {
    result.refusal.headline = s.tuning && s.experiment.seeds.empty()
                                  ? "No verdict: tuning has not found a setting for every arm."
                                  : "No verdict: the runs may not be compared.";
    result.refusal.sentences = s.refusals;
    return result;
  }
  for (std::size_t other = 1; other < s.arms.size(); ++other)
    result.comparisons.push_back(compare_arms(s, other));
  adjust(result);
  for (Comparison& c : result.comparisons) {
    if (s.experiment.sequential) add_looks(s, c);
    const std::string& baseline = s.arms[0].arm.name;
    const std::string& other = s.arms[c.other].arm.name;
    c.verdict = s.experiment.sequential ? decide_sequentially(s.experiment, baseline, other, c)
                                        : decide(s.experiment, baseline, other, c);
    if (s.tuning) add_tuning_to_verdict(s, c);
    if (s.experiment.family) c.verdict.sentences.push_back(family_sentence(s.experiment));
  }
  if (!s.experiment.factors.empty()) result.factorial = analyse_factors(s);
  if (result.factorial && s.experiment.family)
    result.factorial->verdict.sentences.push_back(family_sentence(s.experiment));
  if (s.self_check) result.self_check = check_against_itself(result.comparisons.front(), s.experiment.alpha);
  return result;
}

namespace {

std::string percent(double share) {
  return fmt::format("{:.4g}%", 100 * share);
}

const char* pairs_word(std::size_t n) {
  return n == 1 ? "pair" : "pairs";
}

std::string detectable_sentence(const Experiment& e, const Comparison& c, int decimals) {
  const std::size_t n = c.primary.differences.size();
  if (n >= 2 && !c.primary.t_test.defined()) {
    return "Every pair has the same difference. A sample without spread has no t test and no interval: the "
           "exact test decides. Spread as small as this is unusual; check that the seeds change the runs.";
  }
  if (n < 2) return "One pair has no spread: no difference, however large, can be told from noise.";
  return fmt::format(
      "With {} {} the smallest true difference that is found with {} power is {} paired standard deviations, "
      "here {} in {}.",
      n, pairs_word(n), percent(e.power), fixed(c.detectable_sd, 2), fixed(c.detectable_effect, decimals),
      e.metric);
}

void add_exact_caution(const Experiment& e, const Comparison& c, std::vector<std::string>& out) {
  const bool t_rejects = c.primary.t_test.p <= e.alpha;
  const bool exact_rejects = c.primary.sign_flip.p <= e.alpha;
  if (c.smallest_sign_flip_p > e.alpha) {
    out.push_back(
        fmt::format("With {} {} the exact test cannot fall below {}, so it can never confirm a difference at "
                    "{}{}.",
                    c.primary.differences.size(), pairs_word(c.primary.differences.size()),
                    p_text(c.smallest_sign_flip_p), e.alpha,
                    c.primary.t_test.defined() ? "; the t test relies on normal differences" : ""));
  } else if (c.primary.t_test.defined() && t_rejects != exact_rejects) {
    out.push_back(
        fmt::format("The t test ({}) and the exact sign-flip test ({}) disagree; read the per-seed values.",
                    p_text(c.primary.t_test.p), p_text(c.primary.sign_flip.p)));
  }
}

Verdict decide_by_target(const Experiment& e, const std::string& baseline, const std::string& other,
                         const Comparison& c) {
  Verdict out;
  const TargetComparison* t = target_on(c, e.budget.kind);
  if (t == nullptr) {
    out.outcome = Outcome::kInconclusive;
    out.headline =
        fmt::format("Inconclusive: time to target cannot be measured in {}.", axis_name(e.budget.kind));
    return out;
  }
  const bool significant = c.adjusted_log_rank_p <= e.alpha;
  const bool sooner = t->restricted_mean_difference < 0;
  out.outcome = !significant ? Outcome::kInconclusive : sooner ? Outcome::kBetter : Outcome::kWorse;
  if (significant) {
    out.headline = fmt::format("{} is {} than {}: it reaches {} = {} {} on average {}.", other,
                               sooner ? "better" : "worse", baseline, e.metric, compact(*e.target),
                               quantity(std::abs(t->restricted_mean_difference), e.budget.kind) +
                                   (e.budget.kind == Axis::kSeconds || e.budget.kind == Axis::kBytes
                                        ? ""
                                        : std::string(" ") + axis_name(e.budget.kind)),
                               sooner ? "sooner" : "later");
  } else {
    out.headline =
        fmt::format("Inconclusive: the times at which {} and {} reach {} = {} were not shown to differ.",
                    baseline, other, e.metric, compact(*e.target));
  }
  out.sentences.push_back(
      fmt::format("The target was reached in {} of {} runs of {} and in {} of {} runs of {}; log-rank {}.",
                  t->baseline_estimate.reached, t->baseline_estimate.n, baseline, t->other_estimate.reached,
                  t->other_estimate.n, other, p_text(c.adjusted_log_rank_p)));
  out.sentences.push_back("The log-rank test does not use the pairing, which makes it conservative here.");
  return out;
}

}  // namespace

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kBetter:
      return "better";
    case Outcome::kWorse:
      return "worse";
    case Outcome::kEquivalent:
      return "equivalent";
    case Outcome::kInconclusive:
      return "inconclusive";
    case Outcome::kIdentical:
      return "identical";
    case Outcome::kUndecided:
      return "undecided";
    case Outcome::kNone:
      return "none";
  }
  return "none";
}

Outcome by_interest(const std::vector<Outcome>& outcomes) {
  for (const Outcome wanted : {Outcome::kBetter, Outcome::kUndecided, Outcome::kInconclusive,
                               Outcome::kEquivalent, Outcome::kIdentical, Outcome::kWorse}) {
    if (std::find(outcomes.begin(), outcomes.end(), wanted) != outcomes.end()) return wanted;
  }
  return Outcome::kNone;
}

Verdict decide(const Experiment& e, const std::string& baseline, const std::string& other,
               const Comparison& c, std::string_view family) {
  const PairedMetric& m = c.primary;
  const std::size_t n = m.differences.size();
  Verdict out;
  if (m.ties == n && c.same_weights) {
    out.outcome = Outcome::kIdentical;
    out.headline = fmt::format("Identical: in every pair {} and {} ended with the same weights, bit for bit.",
                               baseline, other);
    out.sentences.push_back(
        "If the arms were meant to differ, the setting had no effect; check that it is active.");
    return out;
  }
  if (e.decide_by == DecideBy::kTimeToTarget) return decide_by_target(e, baseline, other, c);

  const int decimals = metric_decimals(m.difference, m.baseline_mean.mean);
  const std::string coverage = coverage_text(e.alpha);
  const std::string effect =
      n < 2 ? fmt::format("{} differs by {} (one pair)", e.metric, fixed_signed(m.difference.mean, decimals))
      : !m.t_test.defined()
          ? fmt::format("{} differs by {} in each of {} {}", e.metric,
                        fixed_signed(m.difference.mean, decimals), n, pairs_word(n))
          : fmt::format("{} differs by {} ({} interval {} to {}, {} {})", e.metric,
                        fixed_signed(m.difference.mean, decimals), coverage,
                        fixed_signed(m.difference.interval.low, decimals),
                        fixed_signed(m.difference.interval.high, decimals), n, pairs_word(n));
  const bool significant = n >= 2 && m.adjusted_p <= e.alpha;
  const bool improved = m.lower_is_better ? m.difference.mean < 0 : m.difference.mean > 0;
  const char* rule =
      deciding_test(e, m) == DecidingTest::kStudentT ? "paired t test" : "exact sign-flip test";

  if (c.equivalence && c.adjusted_equivalence_p <= e.alpha) {
    out.outcome = Outcome::kEquivalent;
    out.headline =
        fmt::format("{} and {} are equivalent within {}: {}.", other, baseline, compact(*e.margin), effect);
    out.sentences.push_back(
        fmt::format("Both one-sided tests reject a difference as large as the margin ({}).",
                    p_text(c.adjusted_equivalence_p)));
    if (significant) {
      out.sentences.push_back(
          fmt::format("A difference was found ({} {}), but it is smaller than what the margin calls "
                      "relevant.",
                      rule, p_text(m.adjusted_p)));
    }
  } else if (significant) {
    out.outcome = improved ? Outcome::kBetter : Outcome::kWorse;
    out.headline =
        fmt::format("{} is {} than {}: {}.", other, improved ? "better" : "worse", baseline, effect);
    out.sentences.push_back(fmt::format("Decided by the {}, {}.", rule, p_text(m.adjusted_p)));
  } else {
    out.outcome = Outcome::kInconclusive;
    out.headline =
        fmt::format("Inconclusive: no difference between {} and {} was shown, and none was ruled out: {}.",
                    other, baseline, effect);
    out.sentences.push_back(fmt::format("Decided by the {}, {}.", rule, p_text(m.adjusted_p)));
  }
  if (c.equivalence && out.outcome != Outcome::kEquivalent) {
    out.sentences.push_back(fmt::format("Equivalence within {} was not shown ({}).", compact(*e.margin),
                                        p_text(c.adjusted_equivalence_p)));
  }
  if (!family.empty() && m.adjusted_p != deciding_p(e, m))
    out.sentences.push_back(fmt::format("p-values are adjusted for the number of {} (Holm).", family));
  out.sentences.push_back(detectable_sentence(e, c, decimals));
  add_exact_caution(e, c, out.sentences);
  return out;
}

}  // namespace tenon::ab
