// Loads of runs against their closed forms: duties, variances, the energy to which a band is compared, and
// files that must be refused.
#include "reproduce/run_sites.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tenon::reproduce {
namespace run_sites_test {

using ab::testing::fresh_folder;
using ab::testing::replaced;
using ::testing::HasSubstr;

constexpr const char* kRunSitesStudy = R"(title = "Strategies"
paper = "p"
question = "q"
base = "run.toml"
metric = "train/loss"
baseline = "each"
[run_sites]
site = "site.toml"
compute_s = 0.4
exchange_s = 0.36
first = 8
[[run_sites.arm]]
arm = "each"
closed_form = true
[[run_sites.arm]]
arm = "rounds"
slots = 8
closed_form = true
[size.quick]
steps = 24
seeds = [1]
[size.default]
steps = 40
seeds = [1]
[[arm]]
name = "each"
[[arm]]
name = "rounds"
)";

std::string refused(const std::string& text) {
  const std::string folder = fresh_folder("run_sites");
  ab::testing::write_text(folder + "/run.toml", "[run]\nsteps = 1\n");
  ab::testing::write_text(folder + "/site.toml", "[power]\n");
  ab::testing::write_text(folder + "/study.toml", text);
  try {
    const StudyFile study = read_study(folder + "/study.toml");
    EXPECT_EQ(study.as<RunSites>().site, folder + "/site.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

/// Two workers on two timelines of rounds: `computing` seconds at 1, `exchange` seconds at 0.3.
power::SimulatedSite rounds(double computing, double exchange, int count) {
  power::SimulatedSite out;
  out.plan.levels.rated_watts = 1000;
  out.plan.levels.levels = {{"forward", 1, 1, 0, 0}, {"communication", 0.3, 0, 0, 0}, {"idle", 0.3, 0, 0, 0}};
  out.plan.workers.count = 2;
  out.plan.rate_hz = 100;
  out.plan.lead_s = 0;
  power::PhaseLog log{"t", {}, {}};
  const double round = computing + exchange;
  for (int i = 0; i < count; ++i) {
    log.phases.push_back({i * round, i * round + computing, "forward"});
    log.phases.push_back({i * round + computing, (i + 1) * round, "communication"});
  }
  out.plan.logs = {log, log};
  out.result = power::simulate(out.plan, {});
  return out;
}

TEST(Rounds, DutyAndVarianceByClosedForm) {
  EXPECT_NEAR(round_duty(1, 0.4, 0.36), 0.4 / 0.76, 1e-15);
  EXPECT_NEAR(round_duty(8, 0.4, 0.36), 3.2 / 3.56, 1e-15);
  EXPECT_EQ(round_duty(5, 0.4, 0), 1);
  const double first = round_duty(1, 0.4, 0.36);
  EXPECT_NEAR(variance_ratio(first, first), 1, 1e-15);
  EXPECT_NEAR(variance_ratio(round_duty(8, 0.4, 0.36), first), 0.36, 0.005);
  EXPECT_NEAR(variance_ratio(round_duty(32, 0.4, 0.36), first), 0.107, 0.0005);
}

TEST(Rounds, LoadsOfTwoLevelsHaveTheirVariance) {
  const power::SimulatedSite each = rounds(0.4, 0.36, 400), eight = rounds(3.2, 0.36, 80);
  const RunLoad first = load_of_run(each, 1, 400, std::nullopt);
  EXPECT_NEAR(first.duty, 0.4 / 0.76, 1e-9);
  EXPECT_NEAR(first.slot_s, 0.76, 1e-9);
  EXPECT_NEAR(first.reading.range / first.rated_watts, 0.7, 1e-9);
  EXPECT_NEAR(first.variance, 0.49 * first.duty * (1 - first.duty), 1e-6);
  const RunLoad later = load_of_run(eight, 1, 640, std::nullopt);
  EXPECT_NEAR(later.slot_s, 3.56 / 8, 1e-9);
  EXPECT_NEAR(later.variance / first.variance, variance_ratio(later.duty, first.duty), 0.002);
  EXPECT_NEAR(later.reading.peak_hz, 1 / 3.56, 0.005);
  EXPECT_EQ(later.shown.watts.size(), 2000u);
  EXPECT_NEAR(later.shown.watts.front(), 1, 1e-9);

  RunSites kind;
  kind.compute_s = 0.4, kind.exchange_s = 0.36;
  RunSitesResult result;
  result.first_duty = first.duty, result.first_variance = first.variance;
  const LoadNumbers numbers = load_numbers(kind, result, {1, {"rounds", 8, true}, {later}});
  EXPECT_NEAR(*numbers.closed_duty, numbers.duty, 1e-9);
  EXPECT_NEAR(numbers.closed_hz, 1 / 3.56, 1e-12);
  EXPECT_NEAR(*numbers.closed_ratio, 0.365, 0.001);
  EXPECT_LT(std::abs(numbers.off_duty()), 0.005);
  const LoadNumbers unclaimed = load_numbers(kind, result, {1, {"rounds", 8, false}, {later}});
  EXPECT_FALSE(unclaimed.closed_duty);
  EXPECT_NEAR(unclaimed.closed_hz, 1 / 3.56, 1e-9) << "from the slot in the trace";
}

TEST(Rounds, TheBandIsAShareOfTheBaseline) {
  const power::SimulatedSite each = rounds(0.4, 0.36, 400), eight = rounds(3.2, 0.36, 80);
  const double energy = power::Spectrum(each.result.stages[0].measured, power::Window::kHann).mean_square();
  const RunLoad own = load_of_run(eight, 1, 640, std::nullopt), of_each = load_of_run(eight, 1, 640, energy);
  EXPECT_GT(own.reading.band_share, 0.95);
  EXPECT_NEAR(of_each.reading.band_share / own.reading.band_share, variance_ratio(3.2 / 3.56, 0.4 / 0.76),
              0.01);
}

TEST(RunSitesFile, RefusesRoundsThatDoNotFit) {
  EXPECT_EQ(refused(kRunSitesStudy), "accepted");
  EXPECT_THAT(refused(replaced(kRunSitesStudy, "first = 8", "first = 4")),
              HasSubstr("slot 4, from which phases count, begins no round of 8 slots"));
  EXPECT_THAT(refused(replaced(kRunSitesStudy, "steps = 24", "steps = 25")),
              HasSubstr("17 slots from slot 8 are no whole rounds of 8 slots (arm 'rounds')"));
  EXPECT_THAT(refused(replaced(kRunSitesStudy, "steps = 24", "steps = 8")),
              HasSubstr("expected more than run_sites.first, which is 8"));
  EXPECT_THAT(refused(replaced(kRunSitesStudy, "arm = \"rounds\"", "arm = \"round\"")),
              HasSubstr("did you mean 'rounds'?"));
}

}  // namespace run_sites_test
}  // namespace tenon::reproduce
