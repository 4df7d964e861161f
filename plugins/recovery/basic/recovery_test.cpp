// Save times of `full`, and the answers of both policies.
#include "full.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

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

/// A run whose slots take `slot_seconds` and whose saves cost `save_seconds`, on its own clock. Returns the
/// seconds at which saves began.
struct Simulated {
  double slot_seconds = 1, save_seconds = 0;
  std::vector<SaveStatus> outcomes = {};  ///< of the first saves; later saves are committed
  std::int64_t delay = 0;                 ///< slots between a request and the agreed slot

  std::vector<double> saves(const char* toml, std::int64_t steps) const {
    const auto options = options_of(toml);
    Full full(*options);
    std::vector<double> begun;
    double now = 0, last = 0;
    std::int64_t agreed = -1;
    for (std::int64_t slot = 1; slot < steps; ++slot) {
      now += slot_seconds;
      SaveMoment moment{.slot = slot, .steps = steps, .seconds = now, .last_save_seconds = last};
      if (full.save_due(moment)) {
        EXPECT_LT(agreed, slot) << "asked again before the agreed slot came";
        agreed = slot + delay;
      }
      moment.requested = slot == agreed;
      if (!full.plan_save(moment).save) continue;
      SaveResult result;
      result.step = slot;
      result.status = begun.size() < outcomes.size() ? outcomes[begun.size()] : SaveStatus::kCommitted;
      begun.push_back(now);
      last = result.status == SaveStatus::kSkipped ? 0 : save_seconds;
      now += last;
      full.on_save(result);
    }
    return begun;
  }
};

TEST(RecoveryFull, SavesByTheClock) {
  EXPECT_THAT((Simulated{}.saves("every_seconds = 3", 12)), ElementsAre(4, 7, 10));
  // A save takes 2 s: the next interval begins at its end.
  EXPECT_THAT((Simulated{.save_seconds = 2}.saves("every_seconds = 3", 12)), ElementsAre(4, 9, 14));
  EXPECT_THAT((Simulated{.delay = 1}.saves("every_seconds = 3", 12)), ElementsAre(5, 9));
  EXPECT_THAT((Simulated{}.saves("every_seconds = 3\nsave_at_end = false", 3)), ElementsAre());
  const auto options = options_of("every_seconds = 3");
  EXPECT_TRUE(Full(*options).plan_save({.slot = 100, .steps = 100}).save) << "after the last slot";
  EXPECT_FALSE(Full(*options).plan_save({.slot = 100, .steps = 200}).save) << "no slot is special";
}

TEST(RecoveryFull, SavesAsOftenAsFailuresAskFor) {
  // sqrt(2 * 2 s * 400 s) = 40 s of work between saves; the first save measures its cost.
  const Simulated two_seconds{.save_seconds = 2};
  EXPECT_THAT(two_seconds.saves("mtbf_seconds = 400", 130), ElementsAre(1, 43, 85, 127));
  // A declared cost replaces the measured one, and the first save.
  EXPECT_THAT(two_seconds.saves("mtbf_seconds = 400\nsave_seconds = 0.5", 70), ElementsAre(21, 43, 65));
  // Daly: 40 (1 + sqrt(1/400) / 3 + 1/3600) - 2 = 38.68 s, so 39 whole slots.
  EXPECT_THAT(two_seconds.saves("mtbf_seconds = 400\nformula = \"daly\"", 90), ElementsAre(1, 42, 83));
  EXPECT_DOUBLE_EQ(young_interval(2, 400), 40);
  EXPECT_NEAR(daly_interval(2, 400), 40 * (1 + 0.05 / 3 + 0.0025 / 9) - 2, 1e-12);
  EXPECT_DOUBLE_EQ(daly_interval(900, 400), 400);
}

// Expected lost time per second of work is C / T + T / 2M to first order; Young's T is its minimum.
TEST(RecoveryFull, YoungsIntervalLosesLeast) {
  const double cost = 3, mtbf = 1000;
  const auto lost = [&](double interval) { return cost / interval + interval / (2 * mtbf); };
  const double best = young_interval(cost, mtbf);
  EXPECT_LT(lost(best), lost(best * 1.05));
  EXPECT_LT(lost(best), lost(best * 0.95));
}

TEST(RecoveryFull, TriesAgainSoonAfterASaveThatLeftNothing) {
  const Simulated aborted{.outcomes = {SaveStatus::kAborted, SaveStatus::kSkipped}};
  EXPECT_THAT(aborted.saves("every_seconds = 30", 70), ElementsAre(31, 34, 37, 67));
  // A skipped save costs nothing and does not measure a save: sqrt(2 * 2 * 400) = 40 stays.
  const Simulated skipped{.save_seconds = 2, .outcomes = {SaveStatus::kCommitted, SaveStatus::kSkipped}};
  EXPECT_THAT(skipped.saves("mtbf_seconds = 400", 95), ElementsAre(1, 43, 47, 89));
}

TEST(RecoveryFull, RefusesTwoWaysAtOnce) {
  const std::pair<const char*, const char*> cases[] = {
      {"every = 5\nmtbf_seconds = 10",
       "recovery: found 'every' and 'mtbf_seconds', which exclude each other; keep one of every "
       "(slots), "
       "every_seconds and mtbf_seconds"},
      {"every_seconds = 5\nmtbf_seconds = 10",
       "recovery: found 'every_seconds' and 'mtbf_seconds', which exclude each other; keep one of every "
       "(slots), every_seconds and mtbf_seconds"},
      {"save_seconds = 5",
       "recovery: option 'save_seconds' means nothing without mtbf_seconds; add it or leave both"},
  };
  for (const auto& [toml, message] : cases) {
    const auto options = options_of(toml);
    try {
      Full full(*options);
      ADD_FAILURE() << "accepted: " << toml;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), message);
    }
  }
}

TEST(RecoveryFull, RefusesWhatCannotProtect) {
  for (const char* toml :
       {"keep = 1", "keep = 0", "every = 0", "every = -5", "every_seconds = 0", "mtbf_seconds = -1"}) {
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
