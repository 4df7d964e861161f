// Intervals, the choice between full and partial recovery, and the distribution of lost samples.
#include "controller.hpp"
#include "clock/emulated_failures.hpp"

#include <tenon/recovery.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace tenon::recovery_cpr::controller_test {
namespace {

constexpr double kHour = 3600, kMinute = 60;

TEST(Controller, P7_IntervalsOfTheSheet) {
  struct Row {
    double save, others, young_hours, full, partial;
  };
  for (const Row& row : {Row{5.6, 5.4, 2.286, 0.085, 0.0053}, Row{5.4, 8.1, 2.245, 0.085, 0.0068},
                         Row{5.0, 8.3, 2.160, 0.082, 0.0068}, Row{5.2, 5.7, 2.203, 0.082, 0.0053}}) {
    const Costs costs{row.save * kMinute, row.others * kMinute, 0, 28 * kHour};
    const Shards shards{8, 1};
    EXPECT_NEAR(young_interval(costs) / kHour, row.young_hours, 1e-3);
    EXPECT_NEAR(pls_interval(0.1, costs, shards) / kHour, 44.8, 1e-9);
    EXPECT_NEAR(full_overhead(costs, young_interval(costs)), row.full, 5e-4);
    EXPECT_NEAR(partial_overhead(costs, pls_interval(0.1, costs, shards)), row.partial, 5e-5);
  }
  const Costs costs{5 * kMinute, 0, 0, 24 * kHour};
  EXPECT_NEAR(young_interval(costs) / kMinute, 120, 1e-3);
  EXPECT_NEAR(expected_pls(44.8 * kHour, {0, 0, 0, 28 * kHour}, {8, 1}), 0.1, 1e-12);
  EXPECT_NEAR(expected_pls(44.8 * kHour, 56 * kHour, {0, 0, 0, 28 * kHour}, {8, 1}), 0.0850, 1e-12);
  EXPECT_NEAR(expected_pls(44.8 * kHour, {0, 0, 0, 28 * kHour}, {8, 4}), 0.4, 1e-12);
}

TEST(Controller, P7_TakesTheCheaperWayAndNeverCostsMoreForALooserTarget) {
  std::mt19937_64 random(7);
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random));
  };
  for (int trial = 0; trial < 300; ++trial) {
    const Costs costs{between(1, 3600), between(1, 3600), between(1, 3600), between(600, 1e6)};
    const Shards shards{1 << std::uniform_int_distribution<int>(0, 7)(random), 1};
    double least = HUGE_VAL, interval = 0;
    for (double target = 1e-5; target <= 1; target *= 1.3) {
      const Choice choice = choose(target, costs, shards, 0);
      const double cost = choice.partial ? choice.partial_cost : choice.full;
      EXPECT_LE(cost, choice.full);
      EXPECT_LE(cost, choice.partial_cost);
      EXPECT_LE(cost, least * (1 + 1e-12)) << "a looser target cannot cost more";
      least = cost;
      if (!choice.partial) continue;
      EXPECT_GT(choice.interval, interval);
      interval = choice.interval;
    }
  }
}

TEST(Controller, P8_FallsBackToFullRecovery) {
  const Costs costs{100, 50, 50, 10000};
  // At equal loading costs the two are equal where the interval of (6) is half of Young's.
  const double edge = young_interval(costs) / 2 / (2 * 4 * costs.mtbf);
  EXPECT_FALSE(choose(edge * 0.999, costs, {4, 1}, 0).partial);
  EXPECT_TRUE(choose(edge * 1.001, costs, {4, 1}, 0).partial);
  EXPECT_DOUBLE_EQ(choose(edge * 0.999, costs, {4, 1}, 0).interval, young_interval(costs));
  // A tie in exact numbers: save 2, mtbf 4: Young 4, full 2/4 + 2/4 = 1; partial at interval 2: 1.
  const Costs tie{2, 0, 0, 4};
  ASSERT_EQ(full_overhead(tie, young_interval(tie)), partial_overhead(tie, pls_interval(0.25, tie, {1, 1})));
  EXPECT_FALSE(choose(0.25, tie, {1, 1}, 0).partial) << "a tie is full recovery";
  EXPECT_FALSE(choose(1, costs, {4, 1}, 1e9).partial) << "an interval that cannot be kept";
}

TEST(LostSamples, P6_CountsWhatTheEquationSays) {
  LostSamples account(8, 1000);
  EXPECT_EQ(account.portion(), 0);
  account.lost(3, 400, 500);  // one shard
  EXPECT_EQ(account.portion(), 100.0 / 8000);
  account.lost(1, 400, 500);  // k = 2 together
  EXPECT_EQ(account.portion(), 200.0 / 8000);
  account.lost(3, 400, 520);  // again in the same interval: its first 100 samples count twice
  EXPECT_EQ(account.portion(), 320.0 / 8000);
  EXPECT_EQ(account.distinct_portion(), 220.0 / 8000);
  account.lost(5, 800, 800);  // exactly at a save
  EXPECT_EQ(account.portion(), 320.0 / 8000);
  account.lost(0, 0, 300);  // before the first save
  EXPECT_EQ(account.portion(), 620.0 / 8000);
  EXPECT_EQ(account.distinct_portion(), 520.0 / 8000);
}

struct Mean {
  double mean = 0, standard_error = 0;
};

/// Mean and standard error of one run's portion over `draws` schedules: saves at multiples of `interval`
/// hours.
Mean portion_of_schedules(config::FailureLaw law, double interval, int draws) {
  double sum = 0, squares = 0;
  constexpr std::int64_t kSamples = 5'600'000;
  for (int draw = 0; draw < draws; ++draw) {
    law.seed = static_cast<std::uint64_t>(draw);
    LostSamples account(law.shards, kSamples);
    for (const config::EmulatedFailure& failure : train::draw_failures(law)) {
      const auto at = [&](double hour) { return static_cast<std::int64_t>(hour / law.hours * kSamples); };
      const double saved = std::floor(failure.hour / interval) * interval;
      for (const int shard : failure.shards) account.lost(shard, at(saved), at(failure.hour));
    }
    sum += account.portion();
    squares += account.portion() * account.portion();
  }
  const double mean = sum / draws;
  return {mean, std::sqrt((squares / draws - mean * mean) / draws)};
}

TEST(LostSamples, P6_MeanOverSchedulesFollowsTheLaw) {
  constexpr int kDraws = 4000;
  config::FailureLaw law;
  law.hours = 56;
  law.mean_hours = 28;
  law.shards = 8;
  const Costs costs{0, 0, 0, 28};
  const auto expect = [](const Mean& found, double expected) {
    EXPECT_LT(found.standard_error, 0.1 * expected + 1e-3);
    EXPECT_NEAR(found.mean, expected, 3 * found.standard_error);
  };
  const double exact = expected_pls(44.8, 56, costs, {8, 1});
  expect(portion_of_schedules(law, 44.8, kDraws), exact);
  expect(portion_of_schedules(law, 2.286, kDraws), expected_pls(2.286, 56, costs, {8, 1}));
  law.lost = 4;
  expect(portion_of_schedules(law, 44.8, kDraws), 4 * exact);
  law.lost = 1;
  law.at_least = 1;
  expect(portion_of_schedules(law, 44.8, kDraws), exact / (1 - std::exp(-2.0)));
  // Gamma distributions of shape 0.7 against figures of an independent simulation.
  law.shape = 0.7;
  expect(portion_of_schedules(law, 44.8, kDraws), 0.1047);
  law.at_least = 0;
  expect(portion_of_schedules(law, 44.8, kDraws), 0.0887);
}

}  // namespace
}  // namespace tenon::recovery_cpr::controller_test
