// Cadences of the levels by their closed forms, the level that serves after deaths, and what is refused.
#include "multilevel.hpp"

#include <tenon/config.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/recovery_host.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace tenon::recovery_multilevel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Copies in memory whose slot the test sets. It asks for saves of its own, which must not be made.
class Memory : public RecoveryBase {
 public:
  BoundaryPlan plan_boundary(const SaveMoment& moment) override {
    BoundaryPlan plan;
    plan.acts = moment.slot % every == 0;
    return plan;
  }
  void at_boundary(const SaveMoment& moment) override { copied.push_back(moment.slot); }
  std::int64_t rejoin() override { return slot; }
  void bring_back(std::int64_t to) override { brought.push_back(to); }
  SavePlan plan_save(const SaveMoment&) override {
    SavePlan plan;
    plan.save = true;
    return plan;
  }
  void account(const std::function<void(std::string_view, double)>& sink) override { sink("copies", 2); }

  std::int64_t every = 3, slot = -1;
  std::vector<std::int64_t> copied, brought;
};

/// A policy that chooses what is saved: no policy for memory.
class Choosing final : public Memory, public SaveSelector {
 public:
  void select(const SaveMoment&, SavePlan&) override {}
  void* query(std::string_view id) override {
    return id == SaveSelector::kId ? static_cast<SaveSelector*>(this) : nullptr;
  }
};

/// A policy with the options that outlive it.
struct MadePolicy {
  testing::QuietHost host;
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<MultiLevel> policy;
  MultiLevel* operator->() const { return policy.get(); }
};

std::unique_ptr<MadePolicy> made(const std::string& toml, Recovery* memory = nullptr) {
  auto made = std::make_unique<MadePolicy>();
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  OptionList specs = option_list(MultiLevel::kOptions);
  EXPECT_STREQ(specs.front()->name, "memory");
  specs.erase(specs.begin());
  made->options =
      resolve_options(OptionRequest{.table = config.root(), .owner = "recovery.multilevel", .specs = specs})
          .options;
  if (memory == nullptr) {
    made->options->declare("memory", TENON_OPTION_COMPONENT);
  } else {
    made->options->store("memory",
                         InnerComponent{Recovery::kKind, "memory", nullptr, {memory, [](void*) {}}});
  }
  made->policy = std::make_unique<MultiLevel>(*made->options, made->host);
  return made;
}

std::string refusal(const std::string& toml, Recovery* memory = nullptr) {
  try {
    made(toml, memory);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "accepted";
}

/// Slots of each level in a run of so many slots: "local", "shared", "memory".
std::map<std::string, std::vector<std::int64_t>> saved(MultiLevel& policy, std::int64_t steps) {
  std::map<std::string, std::vector<std::int64_t>> slots;
  for (std::int64_t slot = 0; slot <= steps; ++slot) {
    const SaveMoment moment{.slot = slot, .steps = steps};
    const SavePlan plan = policy.plan_save(moment);
    if (slot > 0 && policy.plan_boundary(moment).acts) {
      policy.at_boundary(moment);
      slots["memory"].push_back(slot);
    }
    if (!plan.save) continue;
    EXPECT_TRUE(plan.everything && plan.consistent);
    slots[policy.place(moment) == kRunFolder ? "shared" : "local"].push_back(slot);
  }
  return slots;
}

TEST(MultiLevel, EachLevelIsSavedByItsOwnCadence) {
  Memory memory;
  const auto policy = made("every = 10\nlocal_folder = \"/tmp/x\"\nlocal_every = 4", &memory);
  auto slots = saved(*policy->policy, 23);
  EXPECT_THAT(slots["memory"], ElementsAre(3, 6, 9, 12, 15, 18, 21));
  EXPECT_THAT(slots["local"], ElementsAre(4, 8, 12, 16));
  EXPECT_THAT(slots["shared"], ElementsAre(10, 20, 23))
      << "20 is due on both levels, and the shared one has it";
  EXPECT_EQ(memory.copied, slots["memory"]);
}

TEST(MultiLevel, CountsOfSavesAreTheClosedFormsForAnyCadence) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t every = 2 + random() % 30, local = 1 + random() % (every - 1),
                       steps = 1 + random() % 200;
    const bool at_end = random() % 2 == 0;
    const auto policy = made("every = " + std::to_string(every) +
                             "\nlocal_folder = \"/tmp/x\"\nlocal_every = " + std::to_string(local) +
                             "\nsave_at_end = " + (at_end ? "true" : "false"));
    auto slots = saved(*policy->policy, steps);
    std::int64_t least_common = every;
    while (least_common % local != 0) least_common += every;
    const bool end_is_local = at_end && steps % every != 0 && steps % local == 0;
    EXPECT_EQ(slots["shared"].size(), steps / every + (at_end && steps % every != 0 ? 1 : 0));
    EXPECT_EQ(slots["local"].size(), steps / local - steps / least_common - (end_is_local ? 1 : 0));
  }
}

TEST(MultiLevel, ACadenceDoesNotDependOnSavesOfAnotherLevelNorOnTheirEnd) {
  const auto policy = made("every = 10\nlocal_folder = \"/tmp/x\"\nlocal_every = 4");
  testing::LoneRecoveryHost host;
  policy->policy->bind(host);
  const auto undisturbed = saved(*policy->policy, 40);
  for (const SaveStatus status : {SaveStatus::kCommitted, SaveStatus::kAborted, SaveStatus::kSkipped}) {
    SaveResult result;
    result.status = status;
    result.step = 8;
    policy->policy->on_save(result);
    EXPECT_EQ(saved(*policy->policy, 40), undisturbed);
  }
}

TEST(MultiLevel, LevelsThatAreNotAskedForAreNotThere) {
  const auto policy = made("every = 2");
  EXPECT_THAT((*policy)->places(), IsEmpty());
  auto slots = saved(*policy->policy, 5);
  EXPECT_THAT(slots["shared"], ElementsAre(2, 4, 5));
  EXPECT_THAT(slots["local"], IsEmpty());
  EXPECT_EQ((*policy)->rejoin(), -1);
  EXPECT_EQ((*policy)->on_failure({}).action, FailureAction::kRollBack);
}

TEST(MultiLevel, RequestedSavesAndTheLastGoToTheSharedFolder) {
  const auto policy = made("every = 10\nlocal_folder = \"/tmp/x\"\nlocal_every = 4");
  EXPECT_EQ((*policy)->place({.slot = 8, .steps = 40}), 0);
  EXPECT_EQ((*policy)->place({.slot = 8, .steps = 40, .requested = true}), kRunFolder);
  EXPECT_EQ((*policy)->place({.slot = 8, .steps = 8}), kRunFolder);
  EXPECT_TRUE((*policy)->plan_save({.slot = 7, .steps = 40, .requested = true}).save);
}

TEST(MultiLevel, ThePlaceIsTheFolderThatWasNamed) {
  const auto policy = made("every = 10\nlocal_folder = \"/fast\"\nlocal_every = 4\nlocal_keep = 5\nkeep = 3");
  ASSERT_EQ((*policy)->places().size(), 1u);
  EXPECT_EQ((*policy)->places()[0].name, "local");
  EXPECT_EQ((*policy)->places()[0].folder, "/fast");
  EXPECT_EQ((*policy)->places()[0].keep, 5);
  EXPECT_EQ((*policy)->keep(), 3);
  EXPECT_EQ((*policy)->query(SavePlaces::kId), static_cast<SavePlaces*>(policy->policy.get()));
  EXPECT_EQ((*policy)->query(SaveSelector::kId), nullptr);
}

TEST(MultiLevel, AfterDeathsTheNewestOfMemoryAndDiskServes) {
  Memory memory;
  const auto policy = made("every = 10", &memory);
  testing::LoneRecoveryHost host;
  (*policy)->bind(host);
  memory.slot = 6;
  EXPECT_EQ((*policy)->rejoin(), 6) << "nothing is committed";
  SaveResult result;
  result.status = SaveStatus::kAborted;
  result.step = 8;
  (*policy)->on_save(result);
  EXPECT_EQ((*policy)->rejoin(), 6) << "an aborted save serves nobody";
  result.status = SaveStatus::kCommitted;
  result.step = 5;
  (*policy)->on_save(result);
  EXPECT_EQ((*policy)->rejoin(), 6);
  result.step = 6;
  (*policy)->on_save(result);
  EXPECT_EQ((*policy)->rejoin(), 6) << "memory is cheaper";
  result.step = 8;
  (*policy)->on_save(result);
  EXPECT_EQ((*policy)->rejoin(), -1) << "the checkpoint is newer";
  memory.slot = 9;
  EXPECT_EQ((*policy)->rejoin(), 9);
  (*policy)->bring_back(9);
  EXPECT_THAT(memory.brought, ElementsAre(9));

  // The policy is made anew where other ranks died; what this process knew stays.
  memory.slot = 7;
  const auto again = made("every = 10", &memory);
  (*again)->bind(host);
  EXPECT_EQ((*again)->rejoin(), -1);
}

TEST(MultiLevel, RefusesWhatCannotBeMeant) {
  EXPECT_EQ(refusal("every = 10\nlocal_folder = \"/tmp/x\"\nlocal_every = 10"),
            "recovery multilevel: local_every = 10 and every = 10; the local folder is the cheaper level and "
            "is saved "
            "to more often: lower local_every, or leave local_folder out");
  EXPECT_EQ(refusal("every = 3\nlocal_folder = \"/tmp/x\"").substr(0, 51),
            "recovery multilevel: local_every = 10 and every = 3");
  EXPECT_EQ(refusal("every = 3"), "accepted") << "there is no local level";
  EXPECT_THAT(refusal("local_folder = \"\""), HasSubstr("local_folder"));
  EXPECT_THAT(refusal("local_keep = 1"), HasSubstr("local_keep"));
  EXPECT_THAT(refusal("local_every = 0"), HasSubstr("local_every"));
  Choosing choosing;
  EXPECT_THAT(refusal("every = 10", &choosing),
              HasSubstr("its memory policy decides about saves of its own (tenon.recovery.selector/1)"));
}

TEST(MultiLevel, CallsOfAPolicyInMemoryArePassedOn) {
  Memory memory;
  const auto policy = made("every = 10", &memory);
  std::map<std::string, double> account;
  (*policy)->account([&](std::string_view name, double value) { account[std::string(name)] = value; });
  EXPECT_EQ(account["copies"], 2);
  EXPECT_FALSE((*policy)->plan_save({.slot = 1, .steps = 40}).save) << "but not its saves";
}

}  // namespace
}  // namespace tenon::recovery_multilevel
