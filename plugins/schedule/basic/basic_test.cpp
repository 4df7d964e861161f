// The schedules against recorded values, and their properties beyond the recorded range.
#include "reference/recorded.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/testing/components.hpp>

#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

class Schedules : public ::testing::Test {
 protected:
  Schedules() { registry_.discover({}); }
  Made<Schedule> schedule(std::string_view type, std::string_view options) {
    return make<Schedule>(registry_, host_, type, options);
  }
  QuietHost host_;
  Registry registry_;
};

TEST_F(Schedules, MatchTheRecordedRates) {
  const Recorded recorded("layers");
  const struct {
    const char *name, *type, *options;
  } cases[] = {
      {"schedule_cosine", "cosine", "warmup = 8\nmin_lr = 1e-4"},
      {"schedule_wsd_linear", "wsd", "warmup = 8\nmin_lr = 1e-4\ndecay = 0.3"},
      {"schedule_wsd_one_minus_sqrt", "wsd", "warmup = 8\nmin_lr = 1e-4\ndecay = 0.3\nshape = \"sqrt\""},
  };
  for (const auto& c : cases) {
    const auto rates = recorded.values(std::string(c.name) + ".lr");
    const auto made = schedule(c.type, c.options);
    for (std::size_t t = 0; t < rates.size(); ++t) {
      EXPECT_NEAR(made->rate({static_cast<std::int64_t>(t), 50, 1e-3}), rates[t], 1e-14 * 1e-3)
          << c.name << " at " << t;
    }
  }
}

TEST_F(Schedules, HoldOutsideTheOrdinary) {
  const struct {
    const char *what, *type, *options;
    SchedulePoint point;
    double expected;
  } cases[] = {
      {"no warm-up", "constant", "", {0, 10, 0.5}, 0.5},
      {"first slot of a warm-up moves", "constant", "warmup = 4", {0, 10, 0.5}, 0.125},
      {"last slot of a warm-up is full", "constant", "warmup = 4", {3, 10, 0.5}, 0.5},
      {"constant after it", "constant", "warmup = 4", {1000000, 10, 0.5}, 0.5},
      {"cosine begins full", "cosine", "", {0, 10, 0.5}, 0.5},
      {"cosine half way", "cosine", "min_lr = 0.1", {5, 10, 0.5}, 0.3},
      {"cosine beyond the end", "cosine", "min_lr = 0.1", {11, 10, 0.5}, 0.1},
      {"cosine with steps of its own", "cosine", "steps = 20", {10, 10, 0.5}, 0.25},
      {"warm-up as long as the run", "cosine", "warmup = 10\nmin_lr = 0.1", {10, 10, 0.5}, 0.1},
      {"wsd stable", "wsd", "", {79, 100, 0.5}, 0.5},
      {"wsd decay begins full", "wsd", "", {80, 100, 0.5}, 0.5},
      {"wsd half way down", "wsd", "min_lr = 0.1", {90, 100, 0.5}, 0.3},
      {"wsd sqrt falls faster", "wsd", "shape = \"sqrt\"", {85, 100, 0.5}, 0.25},
      {"wsd beyond the end", "wsd", "min_lr = 0.1", {100, 100, 0.5}, 0.1},
      {"wsd without decay", "wsd", "decay = 0", {99, 100, 0.5}, 0.5},
      {"warm-up wins over decay", "wsd", "warmup = 100\ndecay = 1", {49, 100, 0.5}, 0.25},
  };
  for (const auto& c : cases) {
    EXPECT_NEAR(schedule(c.type, c.options)->rate(c.point), c.expected, 1e-15) << c.what;
  }
}

TEST_F(Schedules, RefuseOptionsOutOfRange) {
  for (const auto& [type, options] :
       {std::pair{"cosine", "warmup = -1"}, std::pair{"wsd", "decay = 1.5"},
        std::pair{"wsd", "shape = \"cubic\""}, std::pair{"cosine", "steps = 0"}}) {
    EXPECT_THROW(schedule(type, options), Error) << type << " " << options;
  }
}

}  // namespace
}  // namespace tenon::testing
