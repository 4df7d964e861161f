// The store when operations fail and the process lives on: full disks, errors and torn writes at every
// operation of a save. An aborted save leaves nothing, the generation before loads, and the next save
// commits.
#include <tenon/checkpoint.hpp>

#include "store/testing/store_scenarios.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace tenon::store_faults_test {
namespace {

using testing::FaultPlan;
using testing::FaultyFiles;
using testing::folder_names;
using testing::Found;
using testing::kFolder;
using testing::MemoryFiles;
using testing::operations_of;
using testing::recover_one_of;
using testing::save_step;
using testing::Scenario;
using testing::scenarios;

// Lets one operation of the scenario's save fail. True if that aborted the save.
bool survives(const Scenario& scenario, const FaultPlan& plan) {
  MemoryFiles memory;
  FaultyFiles files(memory);
  CheckpointStore store(files, kFolder, {});
  scenario.before(store);
  const std::vector<std::string> names_before = folder_names(memory, kFolder);
  files.arm(plan);
  const SaveResult result = scenario.save(store);
  const bool aborted = result.status == SaveStatus::kAborted;
  if (aborted) {
    EXPECT_NE(result.error.find("injected"), std::string::npos) << result.error;
    EXPECT_EQ(folder_names(memory, kFolder), names_before);
  }
  // The process lives on with the same store.
  files.arm({});
  EXPECT_EQ(recover_one_of(store, scenario), aborted ? Found::kOlder : Found::kNewer);
  for (const std::int64_t step : store.generations()) EXPECT_NO_THROW(store.verify(step)) << step;
  EXPECT_EQ(scenario.save(store).status, SaveStatus::kCommitted);
  EXPECT_EQ(recover_one_of(store, scenario), Found::kNewer);
  // Earlier failures do not keep it from being durable.
  memory.crash(MemoryFiles::Survival::kSyncedOnly, 0);
  CheckpointStore after(memory, kFolder, {});
  EXPECT_EQ(recover_one_of(after, scenario), Found::kNewer);
  return aborted;
}

TEST(StoreFaults, F5_AnErrorOrAShortWriteOfAnyOperationAbortsCleanly) {
  for (const Scenario& scenario : scenarios()) {
    const std::vector<std::string> operations = operations_of(scenario);
    for (std::size_t k = 0; k < operations.size(); ++k) {
      for (const bool torn : {false, true}) {
        SCOPED_TRACE(std::string(scenario.name) + ", operation " + operations[k]);
        survives(scenario, {.fail_at = static_cast<std::int64_t>(k), .code = EIO, .torn = torn});
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Where space is allocated late the disk is full only when a file is synced, and a folder that needs another
// block has none for a rename.
TEST(StoreFaults, F4_AFullDiskInAnyWriteSyncOrRenameLeavesTheOlderGeneration) {
  for (const Scenario& scenario : scenarios()) {
    const std::vector<std::string> operations = operations_of(scenario);
    std::map<std::string, int> aborted;
    for (std::size_t k = 0; k < operations.size(); ++k) {
      const std::string kind = operations[k].substr(0, operations[k].find(' '));
      SCOPED_TRACE(std::string(scenario.name) + ", operation " + operations[k]);
      if (survives(scenario, {.fail_at = static_cast<std::int64_t>(k), .code = ENOSPC})) ++aborted[kind];
      if (::testing::Test::HasFailure()) return;
    }
    // Two of each: the ranks' files and the manifest; the manifest into its place and the generation into
    // its.
    for (const char* kind : {"append", "sync", "sync_directory", "rename"}) {
      EXPECT_GE(aborted[kind], 2) << scenario.name << ": " << kind;
    }
  }
}

TEST(StoreFaults, F5_APowerCutBringsNoAbortedSaveBack) {
  for (const Scenario& scenario : scenarios()) {
    const std::vector<std::string> operations = operations_of(scenario);
    for (std::size_t k = 0; k < operations.size(); ++k) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(std::string(scenario.name) + ", operation " + operations[k]);
        MemoryFiles memory;
        FaultyFiles files(memory);
        CheckpointStore store(files, kFolder, {});
        scenario.before(store);
        files.arm({.fail_at = static_cast<std::int64_t>(k)});
        const bool aborted = scenario.save(store).status == SaveStatus::kAborted;
        memory.crash(MemoryFiles::Survival::kRandom, seed * 1000 + k);
        CheckpointStore after(memory, kFolder, {});
        EXPECT_EQ(recover_one_of(after, scenario), aborted ? Found::kOlder : Found::kNewer);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(StoreFaults, F5_AReplacedGenerationDoesNotComeBack) {
  const Scenario scenario = scenarios()[3];
  const std::size_t operations = operations_of(scenario).size();
  for (std::size_t k = 0; k < operations; ++k) {
    MemoryFiles memory;
    FaultyFiles files(memory);
    CheckpointStore store(files, kFolder, {});
    scenario.before(store);
    files.arm({.fail_at = static_cast<std::int64_t>(k)});
    scenario.save(store);
    files.arm({});
    for (const std::int64_t step : {30, 40})
      ASSERT_EQ(save_step(store, step, 1).status, SaveStatus::kCommitted);
    EXPECT_EQ(store.recover(false).step, 40);
    EXPECT_EQ(store.generations(), (std::vector<std::int64_t>{30, 40})) << k;
  }
}

TEST(StoreFaults, F4_AFullDiskAtEveryByteLeavesTheOlderGeneration) {
  const Scenario scenario = scenarios()[2];
  std::int64_t total = 0;
  {
    MemoryFiles memory;
    FaultyFiles files(memory);
    CheckpointStore store(files, kFolder, {});
    scenario.before(store);
    files.arm({});
    scenario.save(store);
    total = files.bytes_written();
  }
  ASSERT_GT(total, 1000);
  // An aborted save leaves the store as it was, so one store serves all budgets.
  MemoryFiles memory;
  FaultyFiles files(memory);
  CheckpointStore store(files, kFolder, {});
  scenario.before(store);
  for (std::int64_t budget = 0; budget < total; ++budget) {
    files.arm({.byte_budget = budget});
    const SaveResult result = scenario.save(store);
    ASSERT_EQ(result.status, SaveStatus::kAborted) << budget;
    ASSERT_NE(result.error.find("full disk"), std::string::npos) << result.error;
    ASSERT_EQ(folder_names(memory, kFolder), (std::vector<std::string>{"step-10", "step-20"})) << budget;
    ASSERT_EQ(store.recover(false).step, 20);
  }
  files.arm({.byte_budget = total});
  EXPECT_EQ(scenario.save(store).status, SaveStatus::kCommitted);
}

}  // namespace
}  // namespace tenon::store_faults_test
