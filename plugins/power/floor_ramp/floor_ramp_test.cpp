// Properties P2 to P5 of the specification of power for the floor, the closed forms of its overhead, its
// controller against NumPy, and what it refuses.
#include "floor_ramp.hpp"
#include "test_paths.hpp"

#include <tenon/testing/power.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

namespace tenon::floor_ramp {
namespace {

using nlohmann::json;
using testing::answers;
using testing::make_policy;

constexpr double kDt = 1e-3;

std::vector<double> square(double high, double low, double duty, double period_s, int periods) {
  std::vector<double> watts;
  const int n = static_cast<int>(std::lround(period_s / kDt)), on = static_cast<int>(std::lround(duty * n));
  for (int i = 0; i < n * periods; ++i) watts.push_back(i % n < on ? high : low);
  return watts;
}

/// A load without structure.
std::vector<double> rough(int samples) {
  std::vector<double> watts;
  std::uint32_t word = 7;
  for (int i = 0; i < samples; ++i) {
    word = word * 1664525 + 1013904223;
    watts.push_back(700.0 * (word >> 8) / (1 << 24));
  }
  return watts;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

TEST(FloorRamp, P2_NeutralOptionsAreTheIdentityToTheBit) {
  const auto made = make_policy<FloorRamp>("");
  EXPECT_TRUE(made->neutral());
  const std::vector<double> load = rough(5000);
  const auto out = answers(*made, {kDt, 700, 1}, load);
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_EQ(std::memcmp(&out[i].watts, &load[i], sizeof(double)), 0) << i;
    EXPECT_EQ(out[i].work, 1);
  }
  for (const char* one :
       {"floor = 0.1", "ceiling = 1.0", "ramp_up = 9.0", "ramp_down = 9.0", "hysteresis_s = 1.0"})
    EXPECT_FALSE(make_policy<FloorRamp>(one)->neutral()) << one;
}

TEST(FloorRamp, P2_SlopesStayWithinTheLimits) {
  const auto made = make_policy<FloorRamp>(
      "floor = 0.4\nceiling = 0.9\nramp_up = 0.37\nramp_down = 0.11\nhysteresis_s = 0.004");
  for (const double rated : {700.0, 7.0e5, 1.3e8}) {
    std::vector<double> load = rough(20000);
    for (double& watts : load) watts *= rated / 700;
    load[0] = 0.5 * rated;
    const auto out = answers(*made, {kDt, rated, 1}, load);
    for (std::size_t i = 1; i < out.size(); ++i) {
      const double slope = (out[i].watts - out[i - 1].watts) / kDt;
      ASSERT_LE(slope, 0.37 * rated * (1 + 1e-12)) << i;
      ASSERT_GE(slope, -0.11 * rated * (1 + 1e-12)) << i;
    }
  }
}

TEST(FloorRamp, P3_EnergyIsTheLoadAndWhatIsBurntWithoutWhatIsThrottled) {
  const auto made = make_policy<FloorRamp>(
      "floor = 0.5\nceiling = 0.8\nramp_up = 2.0\nramp_down = 1.0\nhysteresis_s = 0.02");
  const std::vector<double> load = rough(30000);
  double out = 0, burnt = 0, withheld = 0;
  for (const PowerOutput& answer : answers(*made, {kDt, 700, 1}, load)) {
    out += answer.watts, burnt += answer.burnt, withheld += answer.withheld;
    EXPECT_TRUE(answer.burnt == 0 || answer.withheld == 0);
    EXPECT_EQ(answer.work<1, answer.withheld> 0);
  }
  EXPECT_GT(burnt, 0);
  EXPECT_GT(withheld, 0);
  EXPECT_NEAR(out / (sum(load) + burnt - withheld), 1, 1e-9);
}

TEST(FloorRamp, P4_OverheadIsTheClosedForm) {
  // (1 - d)(f - lo) / mean: among them the pairs for which the paper's 10.5 % at f = 0.9 hold.
  struct Case {
    double low, duty, floor, overhead;
  };
  for (const Case& c :
       {Case{0.2, 0.866, 0.9, 0.105}, Case{0.3, 0.844, 0.9, 0.105}, Case{0.4, 0.813, 0.9, 0.105},
        Case{0.5, 0.768, 0.9, 0.105}, Case{0.6, 0.693, 0.9, 0.105}, Case{0.3, 0.82, 0.9, 0.1236}}) {
    const auto made = make_policy<FloorRamp>(fmt::format("floor = {}\nceiling = 1.0", c.floor));
    const std::vector<double> load = square(700, 700 * c.low, c.duty, 2, 10);
    double out = 0;
    for (const PowerOutput& answer : answers(*made, {kDt, 700, 1}, load)) {
      EXPECT_GE(answer.watts, c.floor * 700);
      out += answer.watts;
    }
    const double mean = c.low + c.duty * (1 - c.low), closed = (1 - c.duty) * (c.floor - c.low) / mean;
    EXPECT_NEAR(out / sum(load) - 1, closed, 1e-9);
    EXPECT_NEAR(closed, c.overhead, 5e-4);
  }
}

TEST(FloorRamp, P4_FloorHoldsAfterTheRampIn) {
  const auto made = make_policy<FloorRamp>("floor = 0.6\nceiling = 1.0\nramp_up = 1.0\nramp_down = 0.5");
  const std::vector<double> load = square(700, 100, 0.3, 0.5, 40);
  std::vector<double> from_low(load.size(), 0);
  std::copy(load.begin() + 200, load.end(), from_low.begin());
  const auto out = answers(*made, {kDt, 700, 1}, from_low);
  std::size_t reached = 0;
  while (reached < out.size() && out[reached].watts < 0.6 * 700) ++reached;
  EXPECT_NEAR(static_cast<double>(reached) * kDt, 0.6 - 100.0 / 700, 2 * kDt);
  for (std::size_t i = reached; i < out.size(); ++i) ASSERT_GE(out[i].watts, 0.6 * 700) << i;
}

TEST(FloorRamp, P5_NoFallBeginsBeforeTheHysteresisIsOver) {
  // Sums of milliseconds drift by a sample from 1,007 on.
  for (const int hold : {1, 3, 70, 1007, 1500}) {
    const auto made = make_policy<FloorRamp>(fmt::format("hysteresis_s = {}\nramp_down = 1.0", hold * kDt));
    std::vector<double> load(3000, 100.0);
    for (int i = 0; i < 500; ++i) load[i] = 700;
    const auto out = answers(*made, {kDt, 700, 1}, load);
    // Sample 499 is the last with target >= out.
    for (int i = 0; i < 499 + hold; ++i) ASSERT_EQ(out[i].watts, 700) << hold << " " << i;
    EXPECT_LT(out[499 + hold].watts, 700) << hold;
  }
}

TEST(FloorRamp, FloorIsReleasedByTheEndOfTheJobAlone) {
  const auto made = make_policy<FloorRamp>("floor = 0.8\nramp_down = 0.1");
  made->start({kDt, 700, 1});
  for (int i = 0; i < 3000; ++i) EXPECT_GE(made->step({i < 100 ? 700.0 : 70.0, 0, false}).watts, 0.8 * 700);
  double before = 0.8 * 700;
  for (int i = 0; i < 9000; ++i) {
    const double now = made->step({70, 0, true}).watts;
    ASSERT_LE(before - now, 0.1 * 700 * kDt * (1 + 1e-12));
    before = now;
  }
  EXPECT_NEAR(before, 70, 1e-9);
}

TEST(FloorRamp, ControllerOfNumPy) {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/power.json");
  const json record = json::parse(in), expected = record["floor_ramp"];
  std::string toml;
  for (const auto& [name, value] : expected["options"].items())
    if (name != "rated") toml += fmt::format("{} = {}\n", name, value.dump());
  const auto made = make_policy<FloorRamp>(toml);
  const double dt = 1 / record["rate_hz"].get<double>();
  const auto out =
      answers(*made, {dt, expected["options"]["rated"], 1}, record["watts"].get<std::vector<double>>());
  double burnt = 0, withheld = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i].watts, expected["out"][i], 1e-9) << i;
    burnt += out[i].burnt * dt, withheld += out[i].withheld * dt;
  }
  EXPECT_NEAR(burnt, expected["burn_j"], 1e-7);
  EXPECT_NEAR(withheld, expected["throttle_j"], 1e-7);
}

TEST(FloorRamp, RefusesWhatCannotWork) {
  const auto refusal = [](const char* toml) -> std::string {
    try {
      make_policy<FloorRamp>(toml);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal("floor = 0.9\nceiling = 0.8"),
            "'floor' is 0.9, above the ceiling of 0.8; lower the floor or raise the ceiling");
  EXPECT_EQ(refusal("ramp_up = 0.0"), "'ramp_up' is 0, with which power never rises; expected more");
  EXPECT_EQ(refusal("ramp_down = 0.0"), "'ramp_down' is 0, with which power never falls; expected more");
}

}  // namespace
}  // namespace tenon::floor_ramp
