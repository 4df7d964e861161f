// Properties of the statistics that hold without a reference: published detectable effects, degenerate
// samples, error rates under heavy-tailed noise.
#include "ab/statistics.hpp"
#include "ab/survival.hpp"
#include "ab/testing/synthetic_runs.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tenon::ab {
namespace {

TEST(Statistics, DetectableEffectsOfTheUsualSizes) {
  const struct {
    std::size_t n;
    double effect;
    double rounding;
  } cases[] = {{3, 3.3, 0.05}, {5, 1.7, 0.05},  {6, 1.4, 0.05},
               {8, 1.2, 0.05}, {10, 1.0, 0.05}, {20, 0.66, 0.005}};
  for (const auto& c : cases)
    EXPECT_NEAR(minimum_detectable_effect(c.n, 0.8, 0.05), c.effect, c.rounding) << c.n;
  EXPECT_TRUE(std::isinf(minimum_detectable_effect(1, 0.8, 0.05)));
}

TEST(Statistics, SmallestExactP) {
  EXPECT_EQ(smallest_sign_flip_p(1), 1.0);
  EXPECT_EQ(smallest_sign_flip_p(5), 0.0625);
  EXPECT_EQ(smallest_sign_flip_p(6), 0.03125);
  for (std::size_t n : {2u, 5u, 6u, 17u, 32u}) {
    std::vector<double> d;
    for (std::size_t i = 0; i < n; ++i) d.push_back(0.1 + 0.01 * static_cast<double>(i));
    EXPECT_DOUBLE_EQ(sign_flip_test(d).p, smallest_sign_flip_p(n)) << n;
  }
}

TEST(Statistics, DegenerateSamples) {
  const std::vector<double> none, one{0.4}, zeros{0, 0, 0, 0}, constant{0.25, 0.25, 0.25};
  EXPECT_EQ(paired_t_test(none).p, 1);
  EXPECT_EQ(sign_flip_test(none).p, 1);
  EXPECT_EQ(paired_t_test(one).p, 1);
  EXPECT_EQ(sign_flip_test(one).p, 1);
  EXPECT_TRUE(std::isnan(mean_with_interval(one, 0.05).interval.low));
  EXPECT_FALSE(paired_t_test(zeros).defined());
  EXPECT_EQ(sign_flip_test(zeros).p, 1);
  EXPECT_EQ(hodges_lehmann(zeros), 0);
  EXPECT_EQ(equivalence_test(zeros, 0.1, 0.05).p, 1.0 / 16);
  EXPECT_FALSE(paired_t_test(constant).defined());
  // Differences of equal numbers that were rounded apart.
  EXPECT_FALSE(paired_t_test(std::vector<double>{4.19 - 4.18, 3.19 - 3.18, 2.19 - 2.18}).defined());
  EXPECT_TRUE(paired_t_test(std::vector<double>{0.01, 0.01, 0.010001}).defined());
  EXPECT_EQ(sign_flip_test(constant).p, 0.25);
  EXPECT_EQ(equivalence_test(constant, 0.1, 0.05).p, 1);
  EXPECT_EQ(equivalence_test(constant, 0.5, 0.05).p, 1.0 / 8);
  EXPECT_EQ(mean_with_interval(constant, 0.05).sd, 0);
  // A constant that no binary fraction holds: its spread must still be exactly zero.
  EXPECT_EQ(mean_with_interval(std::vector<double>(7, 0.1), 0.05).sd, 0);
}

TEST(Statistics, RoundingDoesNotBreakTies) {
  // The sums 0.1 + 0.2 - 0.3 and its mirror are zero on paper and 5e-17 in floating point: every pattern
  // counts.
  EXPECT_EQ(sign_flip_test(std::vector<double>{0.1, 0.2, -0.3}).p, 1.0);
}

TEST(Statistics, SampledSignFlipsAgreeWithExactOnes) {
  std::vector<double> d;
  for (std::uint64_t i = 0; i < kExactSignFlipLimit; ++i) d.push_back(testing::normal_deviate(5, i) + 0.3);
  const SignFlipTest exact = sign_flip_test(d);
  ASSERT_TRUE(exact.exact);
  d.push_back(0.0);  // a zero changes no sum, so the p-value stays
  const SignFlipTest sampled = sign_flip_test(d);
  EXPECT_FALSE(sampled.exact);
  // Four standard errors of a share over 200 000 draws.
  EXPECT_NEAR(sampled.p, exact.p, 4 * std::sqrt(exact.p * (1 - exact.p) / 200'000) + 1e-5);
  EXPECT_EQ(sampled.p, sign_flip_test(d).p);
}

TEST(Statistics, ErrorRatesUnderHeavyTails) {
  constexpr std::uint64_t kStudies = 400;
  constexpr std::uint64_t kPairs = 8;
  int t_rejects = 0;
  int exact_rejects = 0;
  for (std::uint64_t study = 0; study < kStudies; ++study) {
    std::vector<double> d;
    for (std::uint64_t i = 0; i < kPairs; ++i) d.push_back(testing::heavy_deviate(study, i));
    t_rejects += paired_t_test(d).p <= 0.05;
    exact_rejects += sign_flip_test(d).p <= 0.05;
  }
  EXPECT_GE(t_rejects, 0.02 * kStudies);
  EXPECT_LE(t_rejects, 0.08 * kStudies);
  EXPECT_LE(exact_rejects, 0.08 * kStudies);
  EXPECT_GT(exact_rejects, 0);
}

TEST(Statistics, PowerIsWhatTheDetectableEffectPromises) {
  constexpr std::uint64_t kStudies = 1000;
  for (std::uint64_t n : {5u, 10u}) {
    const double effect = minimum_detectable_effect(n, 0.8, 0.05);
    int found = 0;
    for (std::uint64_t study = 0; study < kStudies; ++study) {
      std::vector<double> d;
      for (std::uint64_t i = 0; i < n; ++i) d.push_back(testing::normal_deviate(study + 10'000, i) + effect);
      found += paired_t_test(d).p <= 0.05;
    }
    EXPECT_NEAR(found, 0.8 * kStudies, 4 * std::sqrt(0.16 * kStudies)) << n;
  }
}

TEST(Survival, MlperfMean) {
  const struct {
    const char* name;
    std::vector<Observation> runs;
    std::optional<double> mean;
  } cases[] = {
      {"no runs", {}, std::nullopt},
      {"four runs, plain mean", {{1, true}, {2, true}, {3, true}, {6, true}}, 3.0},
      {"four runs, one missed", {{1, true}, {2, true}, {3, true}, {6, false}}, std::nullopt},
      {"five runs drop both ends", {{1, true}, {2, true}, {3, true}, {4, true}, {100, true}}, 3.0},
      {"a missed run is the slowest", {{1, true}, {2, true}, {3, true}, {4, true}, {2.5, false}}, 3.0},
      {"two missed runs void it", {{1, true}, {2, true}, {3, true}, {9, false}, {9, false}}, std::nullopt},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(mlperf_mean(c.runs).mean, c.mean) << c.name;
    EXPECT_EQ(mlperf_mean(c.runs).why.empty(), c.mean.has_value()) << c.name;
  }
}

TEST(Survival, NoEvents) {
  const std::vector<Observation> none{{10, false}, {10, false}};
  const SurvivalEstimate s = kaplan_meier(none, 10, 0.05);
  EXPECT_TRUE(s.steps.empty());
  EXPECT_FALSE(s.median);
  EXPECT_EQ(s.restricted_mean, 10);
  EXPECT_EQ(log_rank_test(none, none).p, 1);
}

}  // namespace
}  // namespace tenon::ab
