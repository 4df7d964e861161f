// The interval that CheckFreq chooses, and its growth with a measured overhead.
#include "checkfreq.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace tenon::recovery_checkfreq {
namespace {

std::int64_t steps_for(const SaveProfile& profile) {
  SaveFrequency frequency;
  frequency.profiled(profile);
  return frequency.steps();
}

TEST(SaveFrequency, TheWriteFitsIntoTheInterval) {
  struct Case {
    SaveProfile profile;
    std::int64_t steps;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Case cases[] = {
      {{.iteration = 0.5, .overhead = 1, .full = 6}, 10},
      {{.iteration = 0.5, .overhead = 1, .full = 6.25}, 11},  // a fraction of a step rounds up
      {{.iteration = 0.5, .overhead = 1.25, .full = 6.25}, 10},
      {{.iteration = 8, .overhead = 1, .full = 6}, 1},
      {{.iteration = 1, .overhead = 2, .full = 2}, 1},  // nothing is left to write
      {{.iteration = 1, .overhead = 3, .full = 2}, 1},  // clock noise
      {{.iteration = 0, .overhead = 0, .full = 0}, 1},  // a stopped clock
      {{.iteration = 0, .overhead = 0, .full = 1}, 1000000000000000},
      {{.iteration = 1, .overhead = 0, .full = kInfinity}, 1000000000000000},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(steps_for(c.profile), c.steps)
        << c.profile.iteration << " " << c.profile.overhead << " " << c.profile.full;
  }
}

TEST(SaveFrequency, GrowsByTwoStepsAboveFivePercent) {
  SaveFrequency frequency;
  frequency.profiled({.iteration = 1, .overhead = 1, .full = 5});
  ASSERT_EQ(frequency.steps(), 4);
  frequency.measured(5, 4);
  EXPECT_DOUBLE_EQ(frequency.overhead(), 0.25);
  EXPECT_EQ(frequency.steps(), 6);
  frequency.measured(6.5, 6);
  EXPECT_EQ(frequency.steps(), 8);
  frequency.measured(8.25, 8);  // 3.1 %
  EXPECT_EQ(frequency.steps(), 8);
  frequency.measured(7.5, 8);  // steps got faster; the interval stays
  EXPECT_EQ(frequency.overhead(), 0);
  EXPECT_EQ(frequency.steps(), 8);
}

// One second of snapshot per save: a save every 20 steps costs 5 %, which is allowed.
TEST(SaveFrequency, SettlesWhereTheOverheadIsAllowed) {
  SaveFrequency frequency;
  frequency.profiled({.iteration = 1, .overhead = 1, .full = 5});
  for (int save = 0; save < 100; ++save) {
    frequency.measured(static_cast<double>(frequency.steps()) + 1, frequency.steps());
  }
  EXPECT_EQ(frequency.steps(), 20);
  EXPECT_NEAR(frequency.overhead(), 0.05, 1e-12);
}

TEST(SaveFrequency, TheOverheadAllowedIsASetting) {
  SaveFrequency frequency(0.5);
  frequency.profiled({.iteration = 1, .overhead = 1, .full = 2});
  frequency.measured(1.5, 1);
  EXPECT_EQ(frequency.steps(), 1) << "exactly the overhead allowed";
  frequency.measured(1.625, 1);
  EXPECT_EQ(frequency.steps(), 3);
}

TEST(SaveFrequency, NothingIsKnownBeforeTheProfile) {
  SaveFrequency frequency;
  frequency.measured(10, 1);
  EXPECT_EQ(frequency.steps(), 0);
  EXPECT_EQ(frequency.overhead(), 0);
}

TEST(SaveFrequency, AnotherProfileStartsAfresh) {
  SaveFrequency frequency;
  frequency.profiled({.iteration = 1, .overhead = 1, .full = 5});
  frequency.measured(8, 4);
  frequency.profiled({.iteration = 1, .overhead = 1, .full = 4});
  EXPECT_EQ(frequency.steps(), 3);
  EXPECT_EQ(frequency.overhead(), 0);
}

}  // namespace
}  // namespace tenon::recovery_checkfreq
