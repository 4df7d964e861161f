// The rule of decision on synthetic pairs, its error rates, and the numbers around it.
#include "ab/analysis.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tenon::ab {
namespace {

using ::testing::HasSubstr;
using testing::SyntheticRun;

Comparison comparison_of(const Experiment& e, const std::vector<double>& differences) {
  std::vector<double> baseline, other;
  for (std::size_t i = 0; i < differences.size(); ++i) {
    baseline.push_back(2.0 + 0.1 * static_cast<double>(i));
    other.push_back(baseline.back() + differences[i]);
  }
  Comparison c;
  for (std::size_t i = 1; i <= differences.size(); ++i) c.seeds.push_back(static_cast<std::int64_t>(i));
  c.primary = compare_metric(e.metric, e.lower_is_better, baseline, other, e.alpha);
  c.primary.adjusted_p = deciding_p(e, c.primary);
  if (e.margin) {
    c.equivalence = equivalence_test(c.primary.differences, *e.margin, e.alpha);
    c.adjusted_equivalence_p = c.equivalence->p;
  }
  c.smallest_sign_flip_p = smallest_sign_flip_p(differences.size());
  c.detectable_sd = minimum_detectable_effect(differences.size(), e.power, e.alpha);
  c.detectable_effect = c.detectable_sd * c.primary.difference.sd;
  return c;
}

Verdict verdict_of(const Experiment& e, const std::vector<double>& differences) {
  return decide(e, "a", "b", comparison_of(e, differences));
}

std::string words(const Verdict& v) {
  std::string out = v.headline;
  for (const std::string& s : v.sentences) out += "\n" + s;
  return out;
}

TEST(Verdict, EveryOutcome) {
  Experiment plain = testing::sample_experiment(6);
  Experiment higher = plain;
  higher.lower_is_better = false;
  Experiment with_margin = plain;
  with_margin.margin = 0.05;
  Experiment exact = plain;
  exact.test = DecidingTest::kSignFlip;
  const std::vector<double> down{-0.03, -0.02, -0.025, -0.035, -0.028, -0.03};
  const std::vector<double> up{0.03, 0.02, 0.025, 0.035, 0.028, 0.03};
  const std::vector<double> noise{-0.3, 0.2, -0.25, 0.35, 0.28, -0.3};
  const struct {
    const char* name;
    const Experiment& experiment;
    std::vector<double> differences;
    Outcome outcome;
    const char* text;
  } cases[] = {
      {"lower is better", plain, down, Outcome::kBetter, "b is better than a: val/loss differs by \u2212"},
      {"higher loss", plain, up, Outcome::kWorse, "b is worse than a"},
      {"higher is better", higher, up, Outcome::kBetter, "b is better than a"},
      {"within the margin", with_margin, up, Outcome::kEquivalent, "A difference was found"},
      {"noise", plain, noise, Outcome::kInconclusive, "none was ruled out"},
      {"noise against a margin", with_margin, noise, Outcome::kInconclusive,
       "Equivalence within 0.05 was not shown"},
      {"one pair", plain, {-0.5}, Outcome::kInconclusive, "One pair has no spread"},
      {"no spread, three pairs",
       plain,
       {0.02, 0.02, 0.02},
       Outcome::kInconclusive,
       "val/loss differs by +0.0200 in each of 3 pairs.\nDecided by the exact sign-flip test, p = "
       "0.250.\nEvery "
       "pair has the same difference. A sample without spread has no t test"},
      {"no spread, six pairs",
       plain,
       {0.02, 0.02, 0.02, 0.02, 0.02, 0.02},
       Outcome::kWorse,
       "Decided by the exact sign-flip test, p = 0.0312"},
      {"no spread within a margin",
       with_margin,
       {0.02, 0.02, 0.02},
       Outcome::kInconclusive,
       "Equivalence within 0.05 was not shown (p = 0.125)"},
      {"exact test, six pairs", exact, down, Outcome::kBetter, "exact sign-flip test, p = 0.0312"},
      {"exact test, five pairs",
       exact,
       {-1, -2, -1.5, -1.7, -1.2},
       Outcome::kInconclusive,
       "cannot fall below p = 0.0625"},
      {"t test, three pairs",
       plain,
       {-1, -1.1, -0.95},
       Outcome::kBetter,
       "the t test relies on normal differences"},
  };
  for (const auto& c : cases) {
    const Verdict v = verdict_of(c.experiment, c.differences);
    EXPECT_EQ(v.outcome, c.outcome) << c.name << ": " << words(v);
    EXPECT_THAT(words(v), HasSubstr(c.text)) << c.name;
  }
}

TEST(Verdict, EveryVerdictPrintsTheDetectableEffect) {
  const Experiment e = testing::sample_experiment(5);
  EXPECT_THAT(words(verdict_of(e, {0.1, -0.2, 0.1, 0.3, -0.1})),
              HasSubstr("80% power is 1.68 paired standard deviations"));
}

TEST(Verdict, IdenticalNeedsEqualWeights) {
  const Experiment e = testing::sample_experiment(3);
  Comparison c = comparison_of(e, {0, 0, 0});
  EXPECT_EQ(decide(e, "a", "b", c).outcome, Outcome::kInconclusive);
  c.same_weights = true;
  EXPECT_EQ(decide(e, "a", "b", c).outcome, Outcome::kIdentical);
}

TEST(Verdict, ErrorRateOfTheWholeRule) {
  const Experiment e = testing::sample_experiment(8);
  int called = 0;
  for (std::uint64_t study = 0; study < 400; ++study) {
    std::vector<double> d;
    for (std::uint64_t i = 0; i < 8; ++i) d.push_back(0.01 * testing::heavy_deviate(study + 5000, i));
    const Outcome outcome = verdict_of(e, d).outcome;
    called += outcome == Outcome::kBetter || outcome == Outcome::kWorse;
  }
  EXPECT_GE(called, 8);
  EXPECT_LE(called, 32);
}

TEST(Analysis, RelativeChangeOnlyAwayFromZero) {
  EXPECT_TRUE(compare_metric("m", true, {2.0, 2.1, 1.9}, {2.2, 2.3, 2.1}, 0.05).relative_change);
  EXPECT_FALSE(compare_metric("m", true, {-0.1, 0.1, 0.05}, {0.2, 0.3, 0.1}, 0.05).relative_change);
  EXPECT_FALSE(compare_metric("m", true, {2.0}, {2.2}, 0.05).relative_change);
  EXPECT_NEAR(*compare_metric("m", true, {-2.0, -2.1, -1.9}, {-1.8, -1.9, -1.7}, 0.05).relative_change, 0.1,
              1e-12);
}

TEST(Analysis, TimeToTarget) {
  Series series;
  for (int i = 1; i <= 4; ++i) series.push_back({i * 10, 3.0 - 0.5 * i, i * 1.0, i * 160.0, 0, 0});
  EXPECT_EQ(time_to_target(series, 2.0, true, Axis::kSteps).time, 20);
  EXPECT_EQ(time_to_target(series, 2.0, true, Axis::kSamples).time, 320);
  EXPECT_TRUE(time_to_target(series, 2.0, true, Axis::kSteps).reached);
  const Observation never = time_to_target(series, 0.5, true, Axis::kSteps);
  EXPECT_FALSE(never.reached);
  EXPECT_EQ(never.time, 40);
  EXPECT_EQ(time_to_target(series, 2.0, false, Axis::kSteps).time, 10);
}

SyntheticRun run_of(std::size_t arm, std::int64_t seed) {
  const auto s = static_cast<std::uint64_t>(seed);
  SyntheticRun run;
  run.seed = seed;
  run.final_loss = 2 + 0.01 * testing::normal_deviate(s, 1) +
                   (arm == 0 ? 0 : 0.004 * testing::normal_deviate(s, 1 + arm)) + (arm == 2 ? 0.08 : 0);
  run.config = {{"precision.type", arm == 0 ? "\"bf16\"" : arm == 1 ? "\"mxfp8\"" : "\"nvfp4\""}};
  return run;
}

StudyResult result_of(const Experiment& e, int jobs = 1) {
  const std::string folder = testing::fresh_folder("analysis");
  testing::write_runs(e, folder, run_of);
  return analyse(load_study(e, folder, jobs, false));
}

TEST(Analysis, ThreeArmsAreAdjustedTogether) {
  Experiment e = testing::sample_experiment(6);
  e.arms = {{"bf16"}, {"mxfp8"}, {"nvfp4"}};
  const StudyResult r = result_of(e);
  ASSERT_EQ(r.comparisons.size(), 2u);
  EXPECT_EQ(r.comparisons[0].verdict.outcome, Outcome::kInconclusive) << r.comparisons[0].verdict.headline;
  EXPECT_EQ(r.comparisons[1].verdict.outcome, Outcome::kWorse) << r.comparisons[1].verdict.headline;
  const double small = r.comparisons[1].primary.t_test.p;
  EXPECT_DOUBLE_EQ(r.comparisons[1].primary.adjusted_p, 2 * small);
  for (const Comparison& c : r.comparisons) {
    for (const PairedMetric& m : c.secondary) EXPECT_GE(m.adjusted_p, m.t_test.p);
  }
}

TEST(Analysis, TimeToTargetCanDecide) {
  Experiment e = testing::sample_experiment(8);
  e.arms = {{"bf16"}, {"mxfp8"}, {"nvfp4"}};
  e.target = 2.035;
  e.decide_by = DecideBy::kTimeToTarget;
  const StudyResult r = result_of(e);
  ASSERT_EQ(r.comparisons.size(), 2u);
  EXPECT_EQ(r.comparisons[1].verdict.outcome, Outcome::kWorse) << words(r.comparisons[1].verdict);
  EXPECT_EQ(r.comparisons[1].targets[0].other_estimate.reached, 0u);
  EXPECT_EQ(r.comparisons[0].verdict.outcome, Outcome::kInconclusive);
}

TEST(Analysis, WallClockNeedsOneJob) {
  const Experiment e = testing::sample_experiment(2);
  EXPECT_TRUE(result_of(e, 1).costs[0].samples_per_s);
  EXPECT_DOUBLE_EQ(result_of(e, 1).costs[0].exposed_comm_s->mean, 2) << "over the ranks of each run";
  EXPECT_DOUBLE_EQ(result_of(e, 1).costs[0].late_s->mean, 0.5);
  const StudyResult shared = result_of(e, 2);
  EXPECT_FALSE(shared.costs[0].samples_per_s);
  EXPECT_FALSE(shared.costs[0].stall_s);
  EXPECT_TRUE(shared.costs[0].bytes_sent);
  for (Axis axis : usable_axes(shared.study, "val/loss")) EXPECT_NE(axis, Axis::kSeconds);
}

TEST(Analysis, SelfCheckCountsFalseAlarms) {
  const Experiment e = testing::sample_experiment(8);
  std::vector<double> d;
  for (std::uint64_t i = 0; i < 8; ++i) d.push_back(testing::normal_deviate(3, i));
  const SelfCheck check = check_against_itself(comparison_of(e, d), 0.05);
  EXPECT_EQ(check.relabellings, 256u);
  // Over all relabellings the exact test rejects at most alpha, and with 8 pairs at least 2 of 256 patterns.
  EXPECT_LE(check.rate_sign_flip, 0.05);
  EXPECT_GE(check.rate_sign_flip, 2.0 / 256);
  EXPECT_LE(check.rate_t, 0.1);
  EXPECT_EQ(check.metrics, 1u);
}

}  // namespace
}  // namespace tenon::ab
