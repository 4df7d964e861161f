// When `full` saves, and what both policies answer.
#include "full.hpp"
#include "none.hpp"

#include <tenon/config.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tenon::recovery_basic {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<ResolvedOptions> options_of(const char* toml) {
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  return resolve_options(OptionRequest{.table = config.root(),
                                       .owner = "recovery.full",
                                       .specs = option_list(Full::kOptions)})
      .options;
}

std::vector<std::int64_t> saved_slots(const char* toml, std::int64_t steps) {
  const auto options = options_of(toml);
  Full full(*options);
  std::vector<std::int64_t> slots;
  for (std::int64_t slot = 0; slot <= steps; ++slot) {
    const SavePlan plan = full.plan_save({.slot = slot, .steps = steps});
    if (plan.save) {
      EXPECT_TRUE(plan.everything);
      EXPECT_EQ(plan.base_slot, -1);
      slots.push_back(slot);
    }
  }
  return slots;
}

TEST(RecoveryFull, SavesEveryNSlotsAndAtTheEnd) {
  EXPECT_THAT(saved_slots("every = 4", 10), ElementsAre(4, 8, 10));
  EXPECT_THAT(saved_slots("every = 4\nsave_at_end = false", 10), ElementsAre(4, 8));
  EXPECT_THAT(saved_slots("every = 5\nsave_at_end = false", 10), ElementsAre(5, 10));
  EXPECT_THAT(saved_slots("every = 1", 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(saved_slots("", 99), ElementsAre(99));
  EXPECT_THAT(saved_slots("", 200), ElementsAre(100, 200));
}

TEST(RecoveryFull, AnswersOfThePolicy) {
  const auto options = options_of("keep = 3\nasync = false");
  Full full(*options);
  EXPECT_EQ(full.keep(), 3);
  EXPECT_FALSE(full.plan_save({.slot = 100, .steps = 200}).background);
  EXPECT_TRUE(Full(*options_of("")).plan_save({.slot = 100, .steps = 200}).background);
  EXPECT_EQ(full.on_failure({}).action, FailureAction::kRollBack);
  EXPECT_EQ(full.on_failure({}).from_slot, -1);
  EXPECT_FALSE(full.needs_commit());
}

TEST(RecoveryFull, RefusesWhatCannotProtect) {
  for (const char* toml : {"keep = 1", "keep = 0", "every = 0", "every = -5"}) {
    EXPECT_THROW(options_of(toml), Error) << toml;
  }
}

TEST(RecoveryNone, SavesNothingAndEndsTheRun) {
  const auto options = options_of("");
  None none(*options);
  for (std::int64_t slot = 0; slot <= 200; ++slot)
    EXPECT_FALSE(none.plan_save({.slot = slot, .steps = 200}).save);
  EXPECT_EQ(none.keep(), 0);
  EXPECT_EQ(none.on_failure({}).action, FailureAction::kAbort);
}

}  // namespace
}  // namespace tenon::recovery_basic
