// The store when operations fail: a crash, an error, a torn write or a full disk at every point of a save.
// Whatever happens, loading finds the previous or the new generation, bit for bit, and an aborted save leaves
// nothing.
#include <tenon/checkpoint.hpp>

#include "checkpoint/testing/faulty_files.hpp"
#include "checkpoint/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>

namespace tenon {
namespace {

using testing::FaultPlan;
using testing::FaultyFiles;
using testing::folder_names;
using testing::MemoryFiles;
using testing::save_as_world;
using testing::save_step;
using testing::TinyModel;
using Survival = MemoryFiles::Survival;

constexpr char kFolder[] = "/run/checkpoints";

// A history of the store before the save under test, and the save itself.
struct Scenario {
  const char* name;
  std::function<void(CheckpointStore&)> before;
  std::function<SaveResult(CheckpointStore&)> save;
  std::vector<std::int64_t> older;  ///< steps that loading may fall back on
  std::int64_t newer;
};

SaveResult save_bias(CheckpointStore& store, std::int64_t step, std::int64_t base) {
  TinyModel model(step);
  const SaveItem item{"bias", model.view("bias"), Shape{5}, Shape{0}};
  SaveRequest request;
  request.step = step;
  request.base = base;
  request.items = {&item, 1};
  return store.commit(step, std::vector<std::string>{store.write_part(request, 0, 1)});
}

std::vector<Scenario> scenarios() {
  return {
      {"first save", [](CheckpointStore&) {}, [](CheckpointStore& s) { return save_step(s, 10, 1); }, {}, 10},
      {"second save by two ranks",
       [](CheckpointStore& s) { save_step(s, 10, 2); },
       [](CheckpointStore& s) { return save_step(s, 20, 2); },
       {10},
       20},
      {"third save removes the first",
       [](CheckpointStore& s) {
         save_step(s, 10, 1);
         save_step(s, 20, 1);
       },
       [](CheckpointStore& s) { return save_step(s, 30, 2); },
       {20},
       30},
      {"the same step again",
       [](CheckpointStore& s) {
         save_step(s, 10, 1);
         save_step(s, 20, 1);
       },
       [](CheckpointStore& s) { return save_step(s, 20, 2); },
       {20},
       20},
      {"an increment",
       [](CheckpointStore& s) { save_step(s, 10, 1); },
       [](CheckpointStore& s) { return save_bias(s, 20, 10); },
       {10},
       20},
  };
}

// The tensors that a generation of `step` must have in this scenario.
void expect_bits(CheckpointStore& store, std::int64_t step, const Scenario& scenario) {
  CheckpointReader reader = store.open(step);
  const std::string name = scenario.name;
  if (name == "an increment" && step == 20) {
    TinyModel expected(10);
    TinyModel newer(20);
    expected.bytes("bias") = newer.bytes("bias");
    EXPECT_TRUE(expected.equals(reader));
  } else {
    TinyModel expected(step);
    EXPECT_TRUE(expected.equals(reader));
  }
}

void expect_recovers(MemoryFiles& memory, const Scenario& scenario, bool committed) {
  CheckpointStore after(memory, kFolder, {});
  const RestorePoint point = after.recover(false);
  for (const RejectedGeneration& rejected : point.rejected) {
    ADD_FAILURE() << "a crash must not leave a damaged generation: " << rejected.reason;
  }
  if (point.step < 0) {
    EXPECT_TRUE(scenario.older.empty() && !committed) << "nothing was found";
  } else {
    const bool known = point.step == scenario.newer || std::ranges::count(scenario.older, point.step) > 0;
    EXPECT_TRUE(known) << "found step " << point.step;
    if (committed) {
      EXPECT_EQ(point.step, scenario.newer) << "a committed generation is durable";
    }
    expect_bits(after, point.step, scenario);
  }
  for (const std::string& name : folder_names(memory, kFolder)) {
    EXPECT_EQ(name.find('.'), std::string::npos) << "left over: " << name;
  }
  // Training goes on: the step can be saved again, and wins.
  ASSERT_EQ(scenario.save(after).status, SaveStatus::kCommitted);
  EXPECT_EQ(after.recover(false).step, scenario.newer);
}

std::int64_t count_operations(const Scenario& scenario) {
  MemoryFiles memory;
  FaultyFiles files(memory);
  CheckpointStore store(files, kFolder, {});
  scenario.before(store);
  files.arm({});
  EXPECT_EQ(scenario.save(store).status, SaveStatus::kCommitted);
  return files.operations();
}

TEST(StoreCrash, AtEveryOperationOfASave) {
  for (const Scenario& scenario : scenarios()) {
    const std::int64_t operations = count_operations(scenario);
    EXPECT_GT(operations, 20) << scenario.name;
    for (std::int64_t k = 0; k <= operations; ++k) {
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const Survival survival = seed == 0   ? Survival::kSyncedOnly
                                  : seed == 1 ? Survival::kEverything
                                              : Survival::kRandom;
        MemoryFiles memory;
        FaultyFiles files(memory);
        CheckpointStore store(files, kFolder, {});
        scenario.before(store);
        files.arm({.fail_at = k, .torn = seed % 2 == 0, .dead_after = true});
        const SaveResult result = scenario.save(store);
        SCOPED_TRACE(std::string(scenario.name) + ", operation " + std::to_string(k) + ": " +
                     (files.trace().size() > static_cast<std::size_t>(k)
                          ? files.trace()[static_cast<std::size_t>(k)]
                          : "none") +
                     ", survival " + std::to_string(seed));
        memory.crash(survival, seed * 1000 + static_cast<std::uint64_t>(k));
        expect_recovers(memory, scenario, result.status == SaveStatus::kCommitted);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(StoreCrash, AnErrorOfAnyOperationAbortsCleanly) {
  for (const Scenario& scenario : scenarios()) {
    const std::int64_t operations = count_operations(scenario);
    for (std::int64_t k = 0; k < operations; ++k) {
      for (const bool torn : {false, true}) {
        MemoryFiles memory;
        FaultyFiles files(memory);
        CheckpointStore store(files, kFolder, {});
        scenario.before(store);
        const std::vector<std::string> names_before = folder_names(memory, kFolder);
        files.arm({.fail_at = k, .torn = torn});
        const SaveResult result = scenario.save(store);
        SCOPED_TRACE(std::string(scenario.name) + ", operation " +
                     files.trace()[static_cast<std::size_t>(k)]);
        if (result.status == SaveStatus::kAborted) {
          EXPECT_NE(result.error.find("injected"), std::string::npos) << result.error;
          EXPECT_EQ(folder_names(memory, kFolder), names_before);
        }
        // The process lives on with the same store.
        files.arm({});
        const RestorePoint point = store.recover(false);
        EXPECT_TRUE(point.rejected.empty());
        if (result.status == SaveStatus::kCommitted) {
          EXPECT_EQ(point.step, scenario.newer);
        }
        if (point.step >= 0) expect_bits(store, point.step, scenario);
        EXPECT_EQ(scenario.save(store).status, SaveStatus::kCommitted);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(StoreCrash, AFullDiskAtEveryByteLeavesTheOlderGeneration) {
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

TEST(StoreCrash, TwoGenerationsStandOnceTwoWereCommitted) {
  // P18: at any instant of the third save, one verified generation besides the one being written; after it,
  // two.
  const Scenario scenario = scenarios()[2];
  const std::int64_t operations = count_operations(scenario);
  for (std::int64_t k = 0; k <= operations; ++k) {
    MemoryFiles memory;
    FaultyFiles files(memory);
    CheckpointStore store(files, kFolder, {});
    scenario.before(store);
    files.arm({.fail_at = k, .dead_after = true});
    scenario.save(store);
    memory.crash(Survival::kSyncedOnly, 0);
    CheckpointStore after(memory, kFolder, {});
    after.recover(false);
    int verified = 0;
    for (const std::int64_t step : after.generations()) {
      after.verify(step);
      ++verified;
    }
    EXPECT_GE(verified, 2) << k;
  }
}

TEST(StoreCrash, ACrashDuringRecoveryIsRecoveredFrom) {
  for (std::int64_t k = 0; k < 60; ++k) {
    MemoryFiles memory;
    FaultyFiles files(memory);
    CheckpointStore store(files, kFolder, {});
    for (const std::int64_t step : {10, 20}) save_step(store, step, 1);
    memory.overwrite(std::string(kFolder) + "/step-20/MANIFEST.json", "{}");
    memory.make_directories(std::string(kFolder) + "/step-30.tmp");
    memory.make_directories(std::string(kFolder) + "/step-5.gc");
    files.arm({.fail_at = k, .dead_after = true});
    try {
      store.recover(false);
    } catch (const Error&) {
    }
    memory.crash(k % 2 == 0 ? Survival::kSyncedOnly : Survival::kRandom, static_cast<std::uint64_t>(k));
    CheckpointStore after(memory, kFolder, {});
    EXPECT_EQ(after.recover(false).step, 10) << k;
    CheckpointReader reader = after.open(10);
    TinyModel model(10);
    EXPECT_TRUE(model.equals(reader));
  }
}

TEST(StoreKilled, InEveryPhaseOnTheRealFileSystem) {
  const std::unique_ptr<FileSystem> files = make_posix_files();
  std::string root = ::testing::TempDir() + "tenon_killed_XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const std::string folder = root + "/checkpoints";
  {
    CheckpointStore store(*files, folder, {});
    ASSERT_EQ(save_step(store, 1, 2).status, SaveStatus::kCommitted);
    ASSERT_EQ(save_step(store, 2, 2).status, SaveStatus::kCommitted);
  }
  std::int64_t step = 3;
  for (const std::string_view killed_in : {"write", "sync", "manifest", "verify", "rename", "gc", "done"}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      CheckpointStore store(*files, folder, {.keep = 2, .hook = [&](const char* phase) {
                                               if (phase == killed_in) ::kill(::getpid(), SIGKILL);
                                             }});
      save_step(store, step, 2);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << killed_in;
    const bool committed = killed_in == "gc" || killed_in == "done";
    CheckpointStore store(*files, folder, {});
    const RestorePoint point = store.recover(false);
    EXPECT_TRUE(point.rejected.empty());
    EXPECT_EQ(point.step, committed ? step : step - 1) << killed_in;
    CheckpointReader reader = store.open(point.step);
    TinyModel model(point.step);
    EXPECT_TRUE(model.equals(reader));
    if (committed) ++step;
  }
  remove_tree(*files, root);
}

}  // namespace
}  // namespace tenon
