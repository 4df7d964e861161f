// Every number of a study, computed once: the JSON and the HTML report only print these numbers.
#pragma once

#include "ab/sequential.hpp"
#include "ab/statistics.hpp"
#include "ab/study.hpp"
#include "ab/survival.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tenon::ab {

/// One metric compared over the pairs; differences are other - baseline.
struct PairedMetric {
  std::string metric;
  bool lower_is_better = true;
  std::vector<double> baseline, other, differences;  ///< by pair
  MeanEstimate baseline_mean, other_mean, difference;
  TTest t_test;
  SignFlipTest sign_flip;
  double hodges_lehmann = 0;
  double correlation = 0;                  ///< between arms over pairs; NaN if undefined
  std::optional<double> relative_change;   ///< only where the baseline's interval stays away from zero
  std::size_t other_better = 0, ties = 0;  ///< pairs won by the other arm, pairs without difference
  double adjusted_p = 1;                   ///< of the deciding test, Holm over its family
};

/// The test that decides: the requested one, or the exact one if the differences have no t test.
DecidingTest deciding_test(const Experiment& experiment, const PairedMetric& metric);
double deciding_p(const Experiment& experiment, const PairedMetric& metric);

/// Time to target along one axis.
struct TargetComparison {
  Axis axis = Axis::kSteps;
  std::vector<Observation> baseline, other;  ///< by pair
  SurvivalEstimate baseline_estimate, other_estimate;
  LogRankTest log_rank;
  double restricted_mean_difference = 0;
  Interval restricted_mean_interval;  ///< normal, 1 - alpha
  MlperfMean baseline_mlperf, other_mlperf;
};

enum class Outcome { kBetter, kWorse, kEquivalent, kInconclusive, kIdentical, kUndecided, kNone };

/// "better", "worse", "equivalent", "inconclusive", "identical", "undecided", "none".
const char* outcome_name(Outcome outcome);

struct Verdict {
  Outcome outcome = Outcome::kNone;
  std::string headline;                ///< one sentence
  std::vector<std::string> sentences;  ///< the reasons
};

/// The looks of a sequential study at one arm.
struct SequentialResult {
  SequentialCourse course;
  double alpha = 0.05;                ///< this arm's share
  std::size_t arms = 2;               ///< of the study
  std::optional<std::size_t> needed;  ///< undecided: pairs that would conclude; empty: beyond kFarthestPairs
};

inline constexpr std::size_t kFarthestPairs = 10'000;

struct Comparison {
  std::size_t other = 1;  ///< position of the arm; the baseline is arm 0
  std::vector<std::int64_t> seeds;
  PairedMetric primary;
  std::optional<EquivalenceTest> equivalence;
  double adjusted_equivalence_p = 1;  ///< Holm over arms
  double smallest_sign_flip_p = 1;
  double detectable_sd = 0;      ///< minimum detectable effect in paired standard deviations
  double detectable_effect = 0;  ///< the same in units of the primary metric
  bool same_weights = false;     ///< every pair ended with equal weights_hash
  std::vector<TargetComparison> targets;
  double adjusted_log_rank_p = 1;  ///< on the budget's axis, Holm over arms
  std::vector<PairedMetric> secondary;
  std::vector<std::string>
      skipped_metrics;  ///< secondary metrics that could not be compared, with the reason
  std::optional<SequentialResult> sequential;
  /// Both arms at the baseline's chosen setting, on the tuning seeds; if they are tuned apart and chose
  /// apart.
  std::optional<PairedMetric> untuned;
  Verdict verdict;
};

/// A level of a factor against the first one. Values are, by seed, means over the cells with the level.
struct MainEffect {
  std::size_t factor = 0, level = 1;
  Comparison contrast;       ///< over all levels of the other factors; adjusted over all contrasts (Holm)
  Comparison one_at_a_time;  ///< the other factors at their first levels; adjusted over these alone
  MeanEstimate gap;          ///< one at a time - main effect, by seed
  bool misleads = false;     ///< the two have different verdicts
  std::string sentence;      ///< which of both, with numbers
  std::string caution;       ///< the interactions that are present, which the average hides; "" without
};

enum class InteractionReading { kPresent, kWithinMargin, kNoneShown };

/// "present", "within the margin", "none shown".
const char* reading_name(InteractionReading reading);

/// The effect of a level of the first factor at a level of the second one, minus the same effect at the
/// second's first level. Values are, by seed, means over the levels of the remaining factors.
struct Interaction {
  std::size_t first = 0, first_level = 1, second = 1, second_level = 1;
  Comparison contrast;
  InteractionReading reading = InteractionReading::kNoneShown;
  std::string sentence;
};

/// Effects of the factors on the primary metric. Interactions of three and more factors are not tested.
struct FactorialResult {
  std::vector<std::vector<double>> values;  ///< by cell and seed
  std::vector<MeanEstimate> cells;
  std::vector<MainEffect> main;
  std::vector<Interaction> interactions;
  Verdict verdict;  ///< of the study: the outcome that by_interest() takes from the main effects

  std::size_t contrasts() const { return main.size() + interactions.size(); }
};

/// Cost of an arm: mean and spread over its runs. Empty where nothing valid was measured.
struct ArmCost {
  std::optional<MeanEstimate> samples_per_s, tokens_per_s, wall_s;  ///< only if runs had the machine alone
  std::optional<MeanEstimate> stall_s;
  std::optional<MeanEstimate> bytes_sent, peak_rss_mb, hidden_comm_share, exposed_comm_s, late_s;
  std::vector<std::pair<std::string, MeanEstimate>> bytes_by_purpose, quantized_operands;
};

/// A/A: how often the decision rule would call this noise a difference. All 2^n relabellings of the pairs are
/// tried (a fixed sample of them above 12 pairs); the rate should not exceed alpha.
struct SelfCheck {
  std::uint64_t relabellings = 0;
  double rate_t = 0;
  double rate_sign_flip = 0;
  std::size_t metrics = 0;           ///< tested in this study, primary and secondary
  std::size_t metrics_rejected = 0;  ///< raw p of the t test <= alpha
};

struct StudyResult {
  Study study;
  std::vector<ArmCost> costs;           ///< per arm
  std::vector<Comparison> comparisons;  ///< one per arm after the first; empty if the study was refused
  std::optional<SelfCheck> self_check;
  std::optional<FactorialResult> factorial;  ///< of an experiment with factors
  Verdict refusal;                           ///< outcome kNone and the reasons, if there are no comparisons

  const Verdict& verdict() const {
    if (comparisons.empty()) return refusal;
    return factorial ? factorial->verdict : comparisons.front().verdict;
  }
};

StudyResult analyse(Study study);

/// The looks at the arm's final values of the primary metric, which are all there: the arm was in the race
/// until the last of them.
SequentialCourse course_of(const Study& study, std::size_t other);
/// Whether the arm has left the race of a sequential study.
bool left_the_race(const Study& study, std::size_t other, const SequentialCourse& course);

/// The individual steps, for tests and other callers.
PairedMetric compare_metric(const std::string& metric, bool lower_is_better, std::vector<double> baseline,
                            std::vector<double> other, double alpha);
/// Time of the first evaluation at or past the target; censored at the last evaluation if there is none.
Observation time_to_target(const Series& series, double target, bool lower_is_better, Axis axis);
/// Primary metric, equivalence and detectable effect of paired values, before any adjustment.
/// `detectable_sd`: minimum_detectable_effect() of as many pairs.
Comparison compare_values(const Experiment& experiment, std::vector<double> baseline,
                          std::vector<double> other, double detectable_sd);
/// Applies the experiment's rule of decision to adjusted p-values and puts it into words. Order: identical,
/// equivalent (a margin says that smaller differences do not matter), better or worse, inconclusive.
/// `family`: what the p-values are adjusted over; "" if the text around the verdict says it.
Verdict decide(const Experiment& experiment, const std::string& baseline, const std::string& other,
               const Comparison& comparison, std::string_view family = "arms");
/// The outcome that matters most where several are at hand: better, undecided, inconclusive, equivalent,
/// identical, worse; kNone of none.
Outcome by_interest(const std::vector<Outcome>& outcomes);
/// The same for a sequential study. Its numbers are those of the looks, and it prints no p-value.
Verdict decide_sequentially(const Experiment& experiment, const std::string& baseline,
                            const std::string& other, const Comparison& comparison);
/// Fills `untuned`, and says in the verdict what was tuned and how it would read without.
void add_tuning_to_verdict(const Study& study, Comparison& comparison);
/// "4.2", "3e+07": an e-value by its logarithm.
std::string e_value(double log_e);
SelfCheck check_against_itself(const Comparison& comparison, double alpha);

/// The time-to-target numbers on one axis; null if there are none.
const TargetComparison* target_on(const Comparison& comparison, Axis axis);

/// Axes on which the metric's curves of all runs can be drawn: something is consumed, and the clock is valid.
std::vector<Axis> usable_axes(const Study& study, const std::string& metric);

}  // namespace tenon::ab
