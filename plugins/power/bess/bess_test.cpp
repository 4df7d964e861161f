// Properties P2 and P3 of the specification of power for the battery, the energy that flattens a square wave,
// the controller against NumPy, and what it refuses.
#include "bess.hpp"
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

namespace tenon::bess {
namespace {

using nlohmann::json;
using testing::answers;
using testing::make_policy;

constexpr double kDt = 1e-3;

std::vector<double> rough(int samples) {
  std::vector<double> watts;
  std::uint32_t word = 7;
  for (int i = 0; i < samples; ++i) {
    word = word * 1664525 + 1013904223;
    watts.push_back((i % 2000 < 1600 ? 600.0 : 150.0) + 100.0 * (word >> 8) / (1 << 24));
  }
  return watts;
}

TEST(Bess, P2_NeutralOptionsAreTheIdentityToTheBit) {
  const auto made = make_policy<Bess>("capacity_s = 1.0\ncutoff_hz = inf\nsoc_gain = 0.0");
  EXPECT_TRUE(made->neutral());
  const std::vector<double> load = rough(5000);
  const auto out = answers(*made, {kDt, 700, 1}, load);
  for (std::size_t i = 0; i < load.size(); ++i)
    EXPECT_EQ(std::memcmp(&out[i].watts, &load[i], sizeof(double)), 0) << i;
  EXPECT_FALSE(make_policy<Bess>("capacity_s = 1.0")->neutral());
}

TEST(Bess, P2_SlopesStayWithinTheLimitsWhileNothingIsViolated) {
  const auto made = make_policy<Bess>("capacity_s = 5.0\ncutoff_hz = 3.0\nramp_up = 0.21\nramp_down = 0.13");
  for (const double rated : {700.0, 7.0e5, 1.3e8}) {
    std::vector<double> load = rough(20000);
    for (double& watts : load) watts *= rated / 700;
    const auto out = answers(*made, {kDt, rated, 1}, load);
    for (std::size_t i = 1; i < out.size(); ++i) {
      ASSERT_FALSE(out[i].violation) << i;
      const double slope = (out[i].watts - out[i - 1].watts) / kDt;
      ASSERT_LE(slope, 0.21 * rated * (1 + 1e-12)) << i;
      ASSERT_GE(slope, -0.13 * rated * (1 + 1e-12)) << i;
    }
  }
}

TEST(Bess, P3_EnergyBalancesWithEfficiencies) {
  for (const double capacity_s : {5.0, 0.2}) {  // the smaller one runs full and empty
    const auto made =
        make_policy<Bess>(fmt::format("capacity_s = {}\ncutoff_hz = 0.1\nramp_up = 0.3\nramp_down = "
                                      "0.3\ncharge_efficiency = 0.9\ndischarge_efficiency = 0.8",
                                      capacity_s));
    const std::vector<double> load = rough(60000);
    double grid = 0, drawn = 0, charged = 0, discharged = 0, last = 0;
    const auto out = answers(*made, {kDt, 700, 1}, load);
    for (std::size_t i = 0; i < load.size(); ++i) {
      grid += out[i].watts * kDt, drawn += load[i] * kDt;
      (out[i].stored > 0 ? charged : discharged) += std::abs(out[i].stored) * kDt;
      last = out[i].charge_j;
    }
    EXPECT_NEAR((grid - drawn) / (charged - discharged), 1, 1e-9);
    const double begun = 0.5 * capacity_s * 700;
    EXPECT_NEAR((last - begun) / (0.9 * charged - discharged / 0.8), 1, 1e-9);
    EXPECT_GT(charged, discharged);
  }
}

/// A square wave of 1 kW with duty 0.8 and period 2 s, after one sample at its mean.
std::vector<double> example() {
  std::vector<double> watts{800};
  for (int i = 0; i < 20 * 2000; ++i) watts.push_back(i % 2000 < 1600 ? 1000 : 0);
  return watts;
}

struct Flattened {
  double swing = 0, violation_share = 0;
};

Flattened flatten(double joules) {
  // An ideal battery that starts full, because the wave starts high; the reference keeps the first sample's
  // power but for 6e-9 of the distance a sample, for which a thousandth of the energy is room enough.
  const auto made =
      make_policy<Bess>(fmt::format("capacity_s = {}\ncutoff_hz = 1e-6\nsoc_gain = 0.0\nsoc_start = "
                                    "0.9995\ncharge_efficiency = 1.0\ndischarge_efficiency = 1.0",
                                    joules / 1000));
  double low = 1e9, high = 0;
  for (const PowerOutput& answer : answers(*made, {kDt, 1000, 1}, example()))
    low = std::min(low, answer.watts), high = std::max(high, answer.watts);
  Flattened result{high - low, 0};
  made->account([&](std::string_view name, double value) {
    if (name == "violation_share") result.violation_share = value;
  });
  return result;
}

TEST(Bess, EnergyThatFlattensASquareWave) {
  // dP d (1 - d) T = 1000 * 0.8 * 0.2 * 2 = 320 J.
  const Flattened enough = flatten(320 * (1 + 1e-3)), less = flatten(0.9 * 320);
  EXPECT_LT(enough.swing, 0.02);
  EXPECT_EQ(enough.violation_share, 0);
  EXPECT_GT(less.swing, 190);
  EXPECT_NEAR(less.violation_share, 0.1, 0.005) << "a tenth of the wave is not covered";
}

TEST(Bess, ControllerOfNumPy) {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/power.json");
  const json record = json::parse(in), expected = record["bess"];
  std::string toml;
  for (const auto& [name, value] : expected["options"].items())
    if (name != "rated") toml += fmt::format("{} = {}\n", name, value.dump());
  const auto made = make_policy<Bess>(toml);
  const auto out = answers(*made, {1 / record["rate_hz"].get<double>(), expected["options"]["rated"], 1},
                           record["watts"].get<std::vector<double>>());
  int violations = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i].watts, expected["out"][i], 1e-9) << i;
    EXPECT_NEAR(out[i].charge_j, expected["charge_j"][i], 1e-9) << i;
    violations += out[i].violation ? 1 : 0;
  }
  EXPECT_EQ(violations, expected["violations"]);
}

TEST(Bess, RefusesWhatCannotWork) {
  const auto refusal = [](const std::string& toml) -> std::string {
    try {
      make_policy<Bess>(toml)->start({kDt, 700, 1});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal("capacity_s = 1.0"), "accepted");
  EXPECT_EQ(refusal("capacity_s = 0.0005"),
            "'capacity_s' is 0.0005 s: 0.35 J at this place, less than one sample of full swing (0.7 J in "
            "0.001 s); expected at "
            "least 0.001");
  EXPECT_EQ(refusal("capacity_s = 1.0\ncharge_efficiency = 0.0"),
            "'charge_efficiency' is 0; expected more than 0 and at most 1");
  EXPECT_EQ(refusal("capacity_s = 1.0\nramp_up = 0.0"),
            "'ramp_up' is 0, with which the grid's power never rises; expected more");
  EXPECT_THAT(refusal("capacity_s = 1.0\ndischarge_efficiency = 1.5"),
              ::testing::HasSubstr("discharge_efficiency"));
}

}  // namespace
}  // namespace tenon::bess
