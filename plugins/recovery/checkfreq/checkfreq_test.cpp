// The policy that applies the rule: its measurements, and its save slots.
#include "checkfreq.hpp"

#include <tenon/config.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::recovery_checkfreq {
namespace {

using ::testing::ElementsAre;

/// Returns the slots at which the policy requests saves, in a run whose slots take 1 s and whose saves stall
/// it for `stall` and are persistent after `full` seconds.
std::vector<std::int64_t> asked(const char* toml, double stall, double full, std::int64_t steps) {
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  const auto options = resolve_options(OptionRequest{.table = config.root(),
                                                     .owner = "recovery.checkfreq",
                                                     .specs = option_list(CheckFreq::kOptions)})
                           .options;
  CheckFreq policy(*options);
  std::vector<std::int64_t> slots;
  double now = 0;
  for (std::int64_t slot = 1; slot <= steps; ++slot) {
    now += 1;
    SaveMoment moment{.slot = slot, .steps = 1000, .seconds = now};
    if (!policy.save_due(moment)) continue;
    slots.push_back(slot);
    moment.requested = true;
    EXPECT_TRUE(policy.plan_save(moment).save);
    now += stall;
    SaveResult result;
    result.status = SaveStatus::kCommitted;
    result.copy_s = stall;
    result.write_s = full - stall;
    policy.on_save(result);
  }
  return slots;
}

TEST(CheckFreq, SavesAsSoonAsTheOneBeforeIsPersistent) {
  EXPECT_THAT(asked("profile = 4\nmax_overhead = 0.5", 0.5, 6.5, 30), ElementsAre(5, 11, 17, 23, 29));
}

TEST(CheckFreq, StretchesTheIntervalUntilTheOverheadIsAllowed) {
  // Six slots and 0.5 s: 8.3 %; then eight: 6.3 %; then ten: 5 %.
  EXPECT_THAT(asked("profile = 4", 0.5, 6.5, 60), ElementsAre(5, 11, 19, 29, 39, 49, 59));
}

TEST(CheckFreq, SavesAtTheEnd) {
  const Config config = Config::parse("", "test.toml", std::vector<std::string>{});
  const auto options = resolve_options(OptionRequest{.table = config.root(),
                                                     .owner = "recovery.checkfreq",
                                                     .specs = option_list(CheckFreq::kOptions)})
                           .options;
  CheckFreq policy(*options);
  EXPECT_FALSE(policy.plan_save({.slot = 8, .steps = 9}).save);
  EXPECT_TRUE(policy.plan_save({.slot = 9, .steps = 9}).save);
  EXPECT_EQ(policy.on_failure({}).action, FailureAction::kRollBack);
}

}  // namespace
}  // namespace tenon::recovery_checkfreq
