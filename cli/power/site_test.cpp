// Loads from phases, chains in which throttling stretches time, sums of workers, and property P9 of the
// specification of power.
#include "power/site.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon::power {
namespace site_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kPi = std::numbers::pi;

Levels levels(double time_constant) {
  return {"test",
          "",
          "levels.toml",
          1000,
          {{"compute", 1.0, 1, time_constant, time_constant},
           {"wait", 0.2, 0, time_constant, time_constant},
           {"idle", 0.1, 0, 0, 0}}};
}

/// Lets through at most `most` watts.
class Ceiling final : public PowerPolicyBase {
 public:
  explicit Ceiling(double most) : most_(most) {}
  bool neutral() const override { return false; }
  void start(const PowerSetup&) override { seen.clear(); }
  PowerOutput step(const PowerSample& sample) override {
    seen.push_back(sample.watts);
    PowerOutput output;
    output.watts = std::min(sample.watts, most_);
    output.withheld = sample.watts - output.watts;
    output.work = output.watts / sample.watts;
    return output;
  }
  void state(StateVisitor&) override {}
  std::vector<double> seen;

 private:
  double most_;
};

TEST(Load, LevelsOfPhasesAndIdleAround) {
  const Load load =
      load_of({"script", {{0, 0.4, "compute"}, {0.4, 0.6, "wait"}}, {}}, levels(0), 10, -0.2, 0.9);
  EXPECT_THAT(load.watts, ElementsAre(100, 100, 1000, 1000, 1000, 1000, 200, 200, 100, 100, 100));
  EXPECT_THAT(load.activity, ElementsAre(0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_EQ(load.job_begin, 2u);
  EXPECT_EQ(load.job_end, 8u);
}

TEST(Load, AnIntervalHasTheMeanLevel) {
  const Load load =
      load_of({"script", {{0, 0.25, "compute"}, {0.25, 0.5, "wait"}}, {}}, levels(0), 5, 0, 0.4);
  EXPECT_NEAR(load.watts[0], 1000, 1e-9);
  EXPECT_NEAR(load.watts[1], 0.25 * 1000 + 0.75 * 200, 1e-9);
}

TEST(Load, FirstOrderResponse) {
  const Load load = load_of({"script", {{0, 10, "compute"}}, {}}, levels(0.5), 100, 0, 5);
  for (const int i : {0, 10, 49, 99})
    EXPECT_NEAR(load.watts[i], 1000 - 900 * std::exp(-(i + 1) * 0.01 / 0.5), 1e-9) << i;
}

TEST(Load, AnUnknownPhaseNamesTheFile) {
  try {
    load_of({"script", {{0, 1, "computes"}}, {}}, levels(0), 10, 0, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("levels.toml: there is no level of phase 'computes' (known: compute, wait, idle)"));
  }
}

TEST(Chain, WithoutThrottlingTheLoadIsKeptToTheBit) {
  const Load load = load_of({"script", {{0, 3, "compute"}, {3, 5, "wait"}}, {}}, levels(0.03), 1000, -1, 6);
  Ceiling none(1e9);
  const ChainLink chain[] = {{"none", &none}};
  const ChainResult result = play(load, chain, {1e-3, 1000, 1});
  EXPECT_EQ(result.load.watts, load.watts);
  EXPECT_EQ(result.load.activity, load.activity);
  EXPECT_EQ(result.load.job_end, load.job_end);
  EXPECT_EQ(result.delay_s, 0);
}

TEST(Chain, ThrottledWorkComesLaterForAllPolicies) {
  // Compute of 3 s at 1 kW, let through at 750 W: 4 s; the wait and the idle time keep their length.
  const Load load = load_of({"script", {{0, 3, "compute"}, {3, 5, "wait"}}, {}}, levels(0), 1000, -1, 6);
  Ceiling first(750), second(1e9);
  const ChainLink chain[] = {{"ceiling", &first}, {"after", &second}};
  const ChainResult result = play(load, chain, {1e-3, 1000, 1});
  EXPECT_NEAR(result.delay_s, 1, 2e-3);
  EXPECT_NEAR(static_cast<double>(result.load.size()), 8000, 3);
  EXPECT_NEAR(static_cast<double>(result.load.job_end), 7000, 3);
  const auto at_750 = std::count(second.seen.begin(), second.seen.end(), 750.0);
  EXPECT_NEAR(static_cast<double>(at_750), 4000, 3) << "the next policy sees the stretched phase";
  const auto waits = std::count(second.seen.begin(), second.seen.end(), 200.0);
  EXPECT_NEAR(static_cast<double>(waits), 2000, 3);
  EXPECT_NEAR(result.steps[0].withheld_j, 250 * 4, 2);
}

TEST(Chain, WorkThatNeverEndsIsAnError) {
  const Load load = load_of({"script", {{0, 1, "compute"}}, {}}, levels(0), 100, 0, 1);
  Ceiling all(0);
  const ChainLink chain[] = {{"all", &all}};
  EXPECT_THROW(play(load, chain, {1e-2, 1000, 1}), Error);
}

TEST(Sum, MovesRepeatsAndHolds) {
  const Load a{10, {1, 2, 3, 4}, {0, 1, 1, 0}, 1, 3}, b{10, {10, 20, 30, 40}, {0, 0, 0, 0}, 1, 3};
  const Load loads[] = {a, b};
  const std::int64_t offsets[] = {0, 1, -1};  // workers 0 and 2 have load a
  const Load sum = sum_of(loads, offsets, 1000);
  EXPECT_THAT(sum.watts,
              ElementsAre(1000 + 1 + 10 + 2, 1000 + 2 + 10 + 3, 1000 + 3 + 20 + 4, 1000 + 4 + 30 + 4));
  EXPECT_NEAR(sum.activity[0], (0 + 0 + 1) / 3.0, 1e-12);
  EXPECT_EQ(sum.job_begin, 2u) << "the last worker begins";
  EXPECT_EQ(sum.job_end, 2u) << "the first one ends";
}

TEST(Sum, WorkersAlikeAreTheirNumber) {
  const Load a{10, {1.5, 2.5}, {1, 0}, 0, 2};
  const Load loads[] = {a};
  const Load sum = sum_of(loads, std::vector<std::int64_t>(64, 0), 0);
  EXPECT_THAT(sum.watts, ElementsAre(96, 160));
  EXPECT_THAT(sum.activity, ElementsAre(1, 0));
}

// P9.

constexpr double kRate = 1000, kHz = 2;
constexpr int kPadding = 500, kPeriod = 500, kPeriods = 4;

Load line() {
  Load load{kRate, {}, {}, 0, 0};
  for (int i = 0; i < 2 * kPadding + kPeriods * kPeriod; ++i) {
    load.watts.push_back(500 + 100 * std::sin(2 * kPi * kHz * i / kRate));
    load.activity.push_back(0);
  }
  return load;
}

/// The aggregate's amplitude at the line, of that of workers in phase.
double relative_amplitude(const Load& load, const Workers& workers) {
  const Load loads[] = {load};
  const Load sum = sum_of(loads, worker_offsets(workers, kRate), 0);
  const Trace inside{kRate, {sum.watts.begin() + kPadding, sum.watts.end() - kPadding}};
  return Spectrum(inside, Window::kRectangular).amplitude(kPeriods) / (100 * workers.count);
}

TEST(Jitter, P9_NoDeviationIsNoJitter) {
  for (const std::int64_t offset : worker_offsets({100, 0, 3}, kRate)) EXPECT_EQ(offset, 0);
  EXPECT_NEAR(relative_amplitude(line(), {16, 0, 1}), 1, 1e-12);
}

TEST(Jitter, P9_RmsAmplitudeOverRepeats) {
  const Load load = line();
  struct Case {
    int workers;
    double sigma;
  };
  for (const Case& c : {Case{8, 0.02}, Case{32, 0.05}, Case{32, 0.1}}) {
    constexpr int kRepeats = 200;
    double sum = 0, squares = 0;
    for (int r = 0; r < kRepeats; ++r) {
      const double amplitude =
          relative_amplitude(load, {c.workers, c.sigma, static_cast<std::uint64_t>(r + 1)});
      sum += amplitude * amplitude;
      squares += std::pow(amplitude, 4);
    }
    const double mean = sum / kRepeats;
    const double error = std::sqrt((squares / kRepeats - mean * mean) / (kRepeats - 1));
    const double a = std::exp(-std::pow(2 * kPi * kHz * c.sigma, 2) / 2);
    EXPECT_NEAR(mean, a * a + (1 - a * a) / c.workers, 3 * error)
        << c.workers << " workers, " << c.sigma << " s";
    EXPECT_LT(error, 0.1 * mean);
  }
}

}  // namespace site_test
}  // namespace tenon::power
