// Times and content of the policy's saves, and its answers to failures.
#include "cpr.hpp"
#include "tables_in_memory.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/testing/recovery_host.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace tenon::recovery_cpr::cpr_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kHour = 3600;

/// The emulated job of the sheet: 56 hours in 5600 slots of 100 samples, 28 hours between failures.
struct Job {
  explicit Job(const char* toml, std::vector<std::int64_t> rows = {4000, 3000, 50, 20}) : set(rows, 16) {
    const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
    options = resolve_options(OptionRequest{.table = config.root(),
                                            .owner = "recovery.cpr",
                                            .specs = option_list(Cpr::kOptions)})
                  .options;
    policy = std::make_unique<Cpr>(*options);
    host.context.steps = 5600;
    host.context.samples = 560000;
    host.context.live = &set;
    host.context.domains = {8, true};
    host.context.emulated = true;
    host.context.costs = {5.6 * 60, 2.7 * 60, 2.7 * 60, 28 * kHour};
    policy->bind(host);
  }

  SavePlan at(std::int64_t slot) {
    const SaveMoment moment{.slot = slot,
                            .steps = 5600,
                            .samples = slot * 100,
                            .seconds = 0.01 * kHour * static_cast<double>(slot),
                            .same_clock = true};
    SavePlan plan = policy->plan_save(moment);
    if (plan.save) policy->select(moment, plan);
    if (plan.save) policy->on_save({.status = SaveStatus::kCommitted, .step = slot});
    return plan;
  }
  std::vector<std::int64_t> saves() {
    std::vector<std::int64_t> slots;
    for (std::int64_t slot = 0; slot <= 5600; ++slot) {
      if (at(slot).save) slots.push_back(slot);
    }
    return slots;
  }
  double account(const char* name) {
    std::map<std::string, double> values;
    policy->account([&](std::string_view key, double value) { values[std::string(key)] = value; });
    return values.at(name);
  }

  MemorySet set;
  std::unique_ptr<ResolvedOptions> options;
  tenon::testing::LoneRecoveryHost host;
  std::unique_ptr<Cpr> policy;
};

TEST(Cpr, SavesAtMultiplesOfTheIntervalAndNeverAtTheStart) {
  Job vanilla("tracker = 'vanilla'\nestimate_mtbf = false\nsave_at_end = false");
  EXPECT_DOUBLE_EQ(vanilla.policy->interval(), 44.8 * kHour);
  EXPECT_THAT(vanilla.saves(), ElementsAre(4480));
  Job priority("tracker = 'mfu'\nestimate_mtbf = false\nsave_at_end = false");
  EXPECT_THAT(priority.saves(), ElementsAre(0, 560, 1120, 1680, 2240, 2800, 3360, 3920, 4480, 5040))
      << "generation 0, then eight times as often";
  Job full("partial = 'never'\nestimate_mtbf = false\nsave_at_end = false");
  EXPECT_EQ(full.saves().size(), 24u) << "56 hours at 2.286";
}

// What a slot's accesses are sampled by is the slot, in a run that goes on from it, too.
TEST(Cpr, SamplesTheFirstSlotAfterAResumeAsAnUninterruptedRunDoes) {
  Job through("tracker = 'ssu'\nestimate_mtbf = false"), resumed("tracker = 'ssu'\nestimate_mtbf = false");
  std::vector<std::int64_t> ids(200);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int64_t slot = 0; slot <= 7; ++slot) through.at(slot);
  resumed.policy->start({.slot = 7});
  for (Job* job : {&through, &resumed}) job->policy->on_accesses(0, ids, {});
  const auto rows_of = [](const Job& job) {
    std::vector<std::int64_t> rows;
    for (int group = 0; group < 8; ++group)
      for (const std::int64_t row : dynamic_cast<const Ssu*>(job.policy->tracker())->listed(0, group))
        rows.push_back(row);
    return rows;
  };
  EXPECT_GT(rows_of(through).size(), 10u);
  EXPECT_EQ(rows_of(resumed), rows_of(through));
}

TEST(Cpr, WithoutRowTablesEverySaveIsComplete) {
  Job job("tracker = 'mfu'\npartial = 'always'\nestimate_mtbf = false\nsave_at_end = false", {});
  std::vector<std::int64_t> slots;
  for (std::int64_t slot = 0; slot <= 5600; ++slot) {
    const SavePlan plan = job.at(slot);
    if (!plan.save) continue;
    EXPECT_TRUE(plan.everything && plan.consistent) << slot;
    slots.push_back(slot);
  }
  EXPECT_THAT(slots, ElementsAre(4480)) << "as vanilla saves";
}

TEST(Cpr, PrioritySavesHoldRowsOfLargeTablesAndAllOfSmallOnes) {
  Job job("tracker = 'mfu'\nestimate_mtbf = false");
  EXPECT_TRUE(job.at(0).everything);
  for (std::int64_t slot = 1; slot < 560; ++slot) {
    job.at(slot);
    job.policy->on_accesses(0, std::vector<std::int64_t>{slot}, std::vector<std::uint32_t>{1});
    job.policy->on_accesses(2, std::vector<std::int64_t>{1}, std::vector<std::uint32_t>{1});
  }
  const SavePlan plan = job.at(560);
  ASSERT_TRUE(plan.save);
  EXPECT_FALSE(plan.everything);
  EXPECT_FALSE(plan.consistent);
  EXPECT_FALSE(plan.dense);
  EXPECT_EQ(plan.base_slot, kNewestBase);
  ASSERT_EQ(plan.tables.size(), 4u);
  EXPECT_EQ(plan.tables[0].parameter, 0);
  EXPECT_FALSE(plan.tables[0].all);
  EXPECT_GT(plan.tables[0].ids.size(), 400u);
  EXPECT_LE(plan.tables[0].ids.size(), 508u) << "an eighth of 4000, rounded up in each shard";
  EXPECT_TRUE(plan.tables[1].ids.empty()) << "nothing of it was read";
  for (std::size_t t : {2u, 3u}) EXPECT_TRUE(plan.tables[t].all);
  std::vector<std::int64_t> dense;
  for (std::int64_t slot = 561; slot < 5600; ++slot) {
    const SavePlan next = job.at(slot);
    if (next.save && next.dense) dense.push_back(slot);
  }
  EXPECT_THAT(dense, ElementsAre(4480)) << "survivors hold it";
}

TEST(Cpr, P6_LostSamplesAreThoseSinceVanillaWouldHaveSaved) {
  Job job("tracker = 'ssu'\nestimate_mtbf = false");
  for (std::int64_t slot = 0; slot <= 1200; ++slot) job.at(slot);
  EXPECT_EQ(job.policy->on_failure({.slot = 1200, .shards = {2, 5}}).action, FailureAction::kContinuePartial);
  for (const int shard : {2, 5})
    job.policy->on_restored(
        {.shard = shard, .checkpoint_slot = 1120, .checkpoint_samples = 112000, .samples_now = 120000});
  EXPECT_EQ(job.account("pls"), 2 * 120000.0 / (560000.0 * 8));
  for (std::int64_t slot = 1201; slot <= 4500; ++slot) job.at(slot);
  job.policy->on_restored(
      {.shard = 2, .checkpoint_slot = 4480, .checkpoint_samples = 448000, .samples_now = 450000});
  EXPECT_EQ(job.account("pls"), (2 * 120000.0 + 2000) / (560000.0 * 8));
}

TEST(Cpr, BeyondTheBudgetEverythingIsSavedAtOnceAndRecoveryIsFull) {
  Job job("tracker = 'mfu'\ntarget_pls = 0.02\nestimate_mtbf = false");
  for (std::int64_t slot = 0; slot <= 890; ++slot) job.at(slot);
  ASSERT_EQ(job.policy->on_failure({}).action, FailureAction::kContinuePartial);
  for (int shard = 0; shard < 3; ++shard) job.policy->on_restored({.shard = shard, .samples_now = 89000});
  EXPECT_GT(job.account("pls"), 0.04);
  const SavePlan plan = job.at(891);
  EXPECT_TRUE(plan.save && plan.everything && plan.consistent);
  EXPECT_EQ(job.policy->on_failure({}).action, FailureAction::kRollBack);
  EXPECT_FALSE(job.at(892).save);
  EXPECT_TRUE(job.at(891 + 229).everything);
}

TEST(Cpr, CorrectsTheMeanTimeBetweenFailuresByThoseItSees) {
  Job calm("tracker = 'vanilla'\ntarget_pls = 0.02");
  EXPECT_DOUBLE_EQ(calm.policy->interval(), 8.96 * kHour);
  for (std::int64_t slot = 0; slot <= 896; ++slot) calm.at(slot);
  EXPECT_NEAR(calm.policy->interval(), 2 * 0.02 * 8 * (28 + 8.96) * kHour, 1);
  Job stormy("tracker = 'vanilla'\ntarget_pls = 0.02");
  for (int i = 0; i < 9; ++i) stormy.policy->on_failure({});
  for (std::int64_t slot = 0; slot <= 896; ++slot) stormy.at(slot);
  EXPECT_NEAR(stormy.policy->interval(), 2 * 0.02 * 8 * (28 + 8.96) / 10 * kHour, 1);
}

TEST(Cpr, P8_WherePartialRecoveryDoesNotPayItIsFull) {
  Job strict("tracker = 'mfu'\ntarget_pls = 0.001");
  EXPECT_EQ(strict.account("partial_recovery"), 0);
  EXPECT_EQ(strict.policy->on_failure({}).action, FailureAction::kRollBack);
  EXPECT_NEAR(strict.policy->interval() / kHour, 2.286, 1e-3);
  Job forced("tracker = 'mfu'\ntarget_pls = 0.001\npartial = 'always'");
  EXPECT_EQ(forced.policy->on_failure({}).action, FailureAction::kContinuePartial);
}

TEST(Cpr, LongChainsEndInACompleteCheckpoint) {
  Job job("tracker = 'ssu'\nrebase = 3\nestimate_mtbf = false\nsave_at_end = false");
  std::vector<std::int64_t> complete;
  for (std::int64_t slot = 0; slot <= 5600; ++slot) {
    const SavePlan plan = job.at(slot);
    if (plan.save && plan.everything) complete.push_back(slot);
  }
  EXPECT_THAT(complete, ElementsAre(0, 2240, 4480));
}

TEST(Cpr, SaysWhatItNeeds) {
  const auto refused = [](const char* toml, const std::function<void(RecoveryContext&)>& change) {
    const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
    const auto options = resolve_options(OptionRequest{.table = config.root(),
                                                       .owner = "recovery.cpr",
                                                       .specs = option_list(Cpr::kOptions)})
                             .options;
    Cpr policy(*options);
    MemorySet set({8}, 4);
    tenon::testing::LoneRecoveryHost host;
    host.context.live = &set;
    host.context.domains = {4, true};
    change(host.context);
    try {
      policy.bind(host);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused("", [](RecoveryContext&) {}), "");
  EXPECT_THAT(refused("mtbf_seconds = 9\nlost = 5", [](RecoveryContext&) {}),
              HasSubstr("lost = 5, but there are 4 shard(s)"));
  EXPECT_EQ(refused("mtbf_seconds = 9", [](RecoveryContext&) {}), "");
}

}  // namespace
}  // namespace tenon::recovery_cpr::cpr_test
