// The piecewise schedule against the schedules that it contains, at its boundaries, and its refusals.
#include <tenon/error.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tenon::testing {
namespace {

using ::testing::HasSubstr;

class SegmentsOfARun : public ::testing::Test {
 protected:
  SegmentsOfARun() { registry_.discover({}); }
  Made<Schedule> schedule(std::string_view type, std::string_view options) {
    return make<Schedule>(registry_, host_, type, options);
  }
  Made<Schedule> segments(const std::string& list, int warmup = 0) {
    return schedule("segments", fmt::format("warmup = {}\nsegment = [{}]", warmup, list));
  }
  QuietHost host_;
  Registry registry_;
};

TEST_F(SegmentsOfARun, EqualTheSchedulesThatTheyContain) {
  // Shares whose ends are whole slots in runs of 50 and 200, so that both round alike.
  const struct {
    const char *list, *type, *options;
  } cases[] = {
      {"{until = 1}", "constant", ""},
      {"{until = 1, shape = 'cosine', to = 0.1}", "cosine", "min_lr = 1e-4"},
      {"{until = 0.7}, {until = 1, shape = 'linear', to = 0.1}", "wsd", "min_lr = 1e-4\ndecay = 0.3"},
      {"{until = 0.7}, {until = 1, shape = 'sqrt', to = 0}", "wsd", "shape = 'sqrt'\ndecay = 0.3"},
      {"{until = 0.3}, {until = 0.6}, {until = 1}", "constant", ""},
      {"{until_slot = 30, shape = 'cosine', to = 0.1}, {until = 1}", "cosine", "steps = 30\nmin_lr = 1e-4"},
  };
  for (const auto& c : cases) {
    for (const int warmup : {0, 8, 40}) {
      const auto pieces = segments(c.list, warmup);
      const auto whole = schedule(c.type, fmt::format("warmup = {}\n{}", warmup, c.options));
      for (const std::int64_t steps : {50, 200}) {
        for (std::int64_t slot = 0; slot <= steps + 5; ++slot) {
          EXPECT_NEAR(pieces->rate({slot, steps, 1e-3}), whole->rate({slot, steps, 1e-3}), 1e-15 * 1e-3)
              << c.list << " warmup " << warmup << " at " << slot << " of " << steps;
        }
      }
    }
  }
}

constexpr const char* kThree =
    "{until = 0.5, shape = 'linear', to = 0.6}, {until_slot = 80, shape = 'cosine', to = 0.25}, "
    "{until = 1, shape = 'sqrt', to = 0.05}";

TEST_F(SegmentsOfARun, GoOnFromEachOtherAtExactSlots) {
  const auto made = segments(kThree, 10);
  const auto at = [&](std::int64_t slot) { return made->rate({slot, 100, 2.0}); };
  EXPECT_EQ(at(0), 0.2);
  EXPECT_EQ(at(9), 2.0) << "the last slot of the warm-up";
  EXPECT_EQ(at(10), 2.0) << "the first segment begins full";
  EXPECT_DOUBLE_EQ(at(30), 2 * (1 - 0.4 * 20 / 40)) << "half way down";
  EXPECT_DOUBLE_EQ(at(49), 2 * (1 - 0.4 * 39 / 40)) << "its last slot";
  EXPECT_EQ(at(50), 2 * 0.6) << "where the next one begins";
  EXPECT_DOUBLE_EQ(at(65), 2 * (0.6 + 0.25) / 2);
  EXPECT_EQ(at(80), 2 * 0.25);
  EXPECT_DOUBLE_EQ(at(85), 2 * (0.25 - 0.2 * std::sqrt(0.25)));
  EXPECT_DOUBLE_EQ(at(100), 2 * 0.05);
  EXPECT_DOUBLE_EQ(at(1000), 2 * 0.05) << "after the end";
}

TEST_F(SegmentsOfARun, FallWithoutJumpsWhereTheirLevelsFall) {
  const auto made = segments(
      "{until = 0.5, shape = 'linear', to = 0.6}, {until = 0.8, shape = 'cosine', to = 0.25}, "
      "{until = 1, shape = 'sqrt', to = 0.05}",
      10);
  for (const std::int64_t steps : {100, 1000, 4096}) {
    // The first slot of the square root falls most, by 0.2 sqrt(1 / length).
    const double most = 0.2 / std::sqrt(0.2 * static_cast<double>(steps) - 1);
    double before = made->rate({10, steps, 1.0});
    for (std::int64_t slot = 11; slot <= steps; ++slot) {
      const double rate = made->rate({slot, steps, 1.0});
      ASSERT_LE(rate, before) << slot << " of " << steps;
      ASSERT_GE(rate, before - most) << slot << " of " << steps;
      before = rate;
    }
    EXPECT_DOUBLE_EQ(before, 0.05);
  }
}

TEST_F(SegmentsOfARun, ScaleAPhaseAlone) {
  const auto made = segments(
      "{until = 0.6, lr_scale = 0.5}, {until = 0.8, shape = 'linear', to = 0.5}, "
      "{until = 1, lr_scale = 3}",
      4);
  const auto at = [&](std::int64_t slot) { return made->rate({slot, 100, 1.0}); };
  EXPECT_EQ(at(0), 0.125) << "the warm-up reaches the rate that follows";
  EXPECT_EQ(at(3), 0.5);
  EXPECT_EQ(at(59), 0.5);
  EXPECT_EQ(at(60), 1.0) << "from the unscaled level";
  EXPECT_DOUBLE_EQ(at(70), 0.75);
  EXPECT_EQ(at(80), 1.5);
  EXPECT_EQ(at(99), 1.5);
}

TEST_F(SegmentsOfARun, PassOverPhasesThatAShortRunHasNoSlotFor) {
  const auto made = segments("{until = 0.2}, {until = 0.21, shape = 'linear', to = 0.5}, {until = 1}");
  EXPECT_EQ(made->rate({0, 2, 1.0}), 0.5) << "a fifth of two slots is none";
  EXPECT_EQ(made->rate({1, 10, 1.0}), 1.0);
  EXPECT_EQ(made->rate({2, 10, 1.0}), 0.5);
  const auto late = segments("{until_slot = 1000, shape = 'linear', to = 0}, {until = 1}");
  EXPECT_DOUBLE_EQ(late->rate({10, 20, 1.0}), 0.99);
  constexpr std::int64_t kLong = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(made->rate({kLong - 1, kLong, 1.0}), 0.5);
}

TEST_F(SegmentsOfARun, RefuseOnesThatDoNotAscendOrDoNotReachTheEnd) {
  const struct {
    const char *list, *says;
  } cases[] = {
      {"", "schedule.segments: no [[schedule.segment]] is given; expected at least one"},
      {"{until = 0.5}, {until = 0.5}, {until = 1}",
       "segment 1 ends at the share 0.5 of the run; expected more than 0.5, where an earlier one ends"},
      {"{until = 0.5}, {until = 0.4}, {until = 1}", "segment 1 ends at the share 0.4 of the run"},
      {"{until = 0}", "segment 0 ends at the share 0 of the run; expected more than 0"},
      {"{until_slot = 9}, {until_slot = 9}, {until = 1}",
       "segment 1 ends at slot 9; expected more than 9, where an earlier one ends"},
      {"{until = 1}, {until_slot = 9}", "segment 1 begins at the end of the run"},
      {"{until = 1}, {until = 1}", "segment 1 ends at the share 1 of the run; expected more than 1"},
      {"{until = 0.5}", "segment 0 is the last one and ends before the run does; expected 'until = 1'"},
      {"{until_slot = 50}", "segment 0 is the last one and ends before the run does; expected 'until = 1'"},
      {"{shape = 'constant'}",
       "segment 0 must have 'until', a share of the run, or 'until_slot', and not both"},
      {"{until = 1, until_slot = 4}", "segment 0 must have 'until', a share of the run, or 'until_slot'"},
      {"{until = 1, to = 0.5}", "segment 0 has 'to' and the shape \"constant\""},
      {"{until = 1, shape = 'cosine'}", "segment 0 has the shape \"cosine\" and no 'to'"},
      {"{until = 1.5}", "until"},
      {"{until = 1, shape = 'cubic', to = 0}", "shape"},
      {"{until = 1, lr_scale = -1}", "lr_scale"},
  };
  for (const auto& c : cases) EXPECT_THAT(error_of([&] { segments(c.list); }), HasSubstr(c.says)) << c.list;
}

}  // namespace
}  // namespace tenon::testing
