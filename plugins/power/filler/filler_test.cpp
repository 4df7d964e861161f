// Thresholds, gain, back-off and ramps of the filler's model.
#include "filler.hpp"

#include <tenon/testing/power.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tenon::filler {
namespace {

using testing::make_policy;

constexpr double kDt = 1e-3;
const PowerSetup kPlace{kDt, 1000, 1};

TEST(Filler, P2_NeutralOptionsAreTheIdentityToTheBit) {
  const auto made = make_policy<Filler>("most_blocks = 0.0");
  EXPECT_TRUE(made->neutral());
  made->start(kPlace);
  for (int i = 0; i < 1000; ++i) {
    const double load = 1000.0 / (1 + i % 7);
    const double out = made->step({load, i % 100 < 50 ? 1.0 : 0.0, false}).watts;
    EXPECT_EQ(std::memcmp(&out, &load, sizeof load), 0);
  }
  EXPECT_FALSE(make_policy<Filler>("")->neutral());
}

TEST(Filler, StartsAfterEnoughLowPeriodsAndReachesItsTarget) {
  const auto made =
      make_policy<Filler>("target = 0.9\nn_on = 5\nfirst_blocks = 2.0\nblock = 0.05\ngain = 0.5");
  made->start(kPlace);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(made->step({1000, 1, false}).burnt, 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(made->step({300, 0, false}).burnt, 0) << i;
  EXPECT_NEAR(made->step({300, 0, false}).watts, 300 + 2 * 50, 1e-9);  // the fifth low period
  double missing = 900 - 400;
  for (int i = 0; i < 40; ++i) {
    const double out = made->step({300, 0, false}).watts;
    EXPECT_NEAR(900 - out, missing * 0.5, 1e-9);  // gain 0.5 halves the error each period
    missing = 900 - out;
  }
}

TEST(Filler, ANewLowPeriodCountsFromTheBeginning) {
  const auto made = make_policy<Filler>("n_on = 3");
  made->start(kPlace);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(made->step({500, i % 3 == 2 ? 1.0 : 0.0, false}).burnt, 0) << i;
}

TEST(Filler, BacksOffWithinOneBlock) {
  for (const int drain : {0, 1, 7}) {
    const auto made = make_policy<Filler>("n_on = 1\ngain = 1.0\nblock_s = " + std::to_string(drain * kDt));
    made->start(kPlace);
    for (int i = 0; i < 100; ++i) made->step({300, 0, false});
    int more = 0;
    for (int i = 0; i < 50; ++i) more += made->step({1000, 1, false}).burnt > 0 ? 1 : 0;
    EXPECT_EQ(more, drain);
  }
}

TEST(Filler, LooksOnlyOncePerPeriod) {
  const auto made = make_policy<Filler>("n_on = 1\nperiod_s = 0.02\nblock_s = 0.0");
  made->start(kPlace);
  for (int i = 0; i < 30; ++i) made->step({300, 0, false});  // looks at samples 0 and 20
  int more = 0;
  for (int i = 0; i < 30; ++i) more += made->step({1000, 1, false}).burnt > 0 ? 1 : 0;
  EXPECT_EQ(more, 10) << "the activity is seen at sample 40";
}

TEST(Filler, RampsOutsideOfTheJob) {
  const auto made =
      make_policy<Filler>("n_on = 1\ngain = 1.0\nramp_up = 0.1\nramp_down = 0.2\nfirst_blocks = 0.0");
  made->start(kPlace);
  double before = 0;
  for (int i = 0; i < 5; ++i)
    before = made->step({100, 0, false}).watts;  // the loop catches up with its target
  double steepest = 0;
  for (int i = 0; i < 9000; ++i) {
    const double now = made->step({100, 0, false}).watts;
    steepest = std::max(steepest, (now - before) / kDt);
    before = now;
  }
  EXPECT_NEAR(before, 900, 1e-6);
  EXPECT_NEAR(steepest, 100, 0.2);
  double fall = 0;
  for (int i = 0; i < 9000; ++i) {
    const double now = made->step({100, 0, true}).watts;
    fall = std::max(fall, (before - now) / kDt);
    before = now;
  }
  EXPECT_NEAR(before, 100, 1e-6);
  EXPECT_NEAR(fall, 200, 1e-6);
}

TEST(Filler, RefusesThresholdsThatCross) {
  EXPECT_THROW(make_policy<Filler>("start_below = 0.6\nstop_above = 0.5"), Error);
  EXPECT_THROW(make_policy<Filler>("ramp_up = 0.0"), Error);
}

}  // namespace
}  // namespace tenon::filler
