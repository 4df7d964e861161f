// The store when the process or the machine dies: at every operation of a save, at every operation of a
// recovery, and with SIGKILL on the real file system. Loading finds the previous or the new generation, bit
// for bit.
#include <tenon/checkpoint.hpp>

#include "store/testing/store_scenarios.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace tenon::store_crash_test {
namespace {

using testing::FaultyFiles;
using testing::folder_names;
using testing::Found;
using testing::kFolder;
using testing::MemoryFiles;
using testing::operations_of;
using testing::recover_one_of;
using testing::save_bias;
using testing::save_step;
using testing::Scenario;
using testing::scenarios;
using testing::TinyModel;
using Survival = MemoryFiles::Survival;

// Unsynced data that survives the death of the process at operation k of the scenario's save: nothing (0),
// all of it (1), or some (2 and more).
constexpr std::uint64_t kSurvivals = 6;

SaveStatus crash_at(std::size_t k, std::uint64_t survival, const Scenario& scenario, MemoryFiles& memory) {
  FaultyFiles files(memory);
  CheckpointStore store(files, kFolder, {});
  scenario.before(store);
  files.arm({.fail_at = static_cast<std::int64_t>(k), .torn = survival % 2 == 0, .dead_after = true});
  const SaveStatus status = scenario.save(store).status;
  memory.crash(survival == 0   ? Survival::kSyncedOnly
               : survival == 1 ? Survival::kEverything
                               : Survival::kRandom,
               survival * 1000 + k);
  return status;
}

TEST(StoreCrash, P14_AtEveryOperationOfASaveTheOldOrTheNewGenerationStands) {
  for (const Scenario& scenario : scenarios()) {
    std::vector<std::string> operations = operations_of(scenario);
    EXPECT_GT(operations.size(), 20u) << scenario.name;
    operations.emplace_back("none");
    for (std::size_t k = 0; k < operations.size(); ++k) {
      for (std::uint64_t survival = 0; survival < kSurvivals; ++survival) {
        SCOPED_TRACE(std::string(scenario.name) + ", operation " + std::to_string(k) + ": " + operations[k] +
                     ", survival " + std::to_string(survival));
        MemoryFiles memory;
        const bool committed = crash_at(k, survival, scenario, memory) == SaveStatus::kCommitted;
        CheckpointStore after(memory, kFolder, {});
        const Found found = recover_one_of(after, scenario);
        if (committed) {
          EXPECT_EQ(found, Found::kNewer) << "a committed generation is durable";
        }
        for (const std::string& name : folder_names(memory, kFolder)) {
          EXPECT_EQ(name.find('.'), std::string::npos) << "left over: " << name;
        }
        // Training goes on: the step can be saved again, and wins.
        ASSERT_EQ(scenario.save(after).status, SaveStatus::kCommitted);
        EXPECT_EQ(recover_one_of(after, scenario), Found::kNewer);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Returns the number of generations; each of them is checked to the last byte.
std::size_t verified(CheckpointStore& store) {
  for (const std::int64_t step : store.generations()) store.verify(step);
  return store.generations().size();
}

TEST(StoreCrash, P18_NoInstantOfASaveHasFewerGenerationsThanWereCommitted) {
  for (const Scenario& scenario : scenarios()) {
    const std::size_t operations = operations_of(scenario).size();
    for (std::size_t k = 0; k <= operations; ++k) {
      for (std::uint64_t survival = 0; survival < kSurvivals; ++survival) {
        MemoryFiles memory;
        crash_at(k, survival, scenario, memory);
        CheckpointStore after(memory, kFolder, {});
        after.recover(false);
        ASSERT_GE(verified(after), scenario.generations)
            << scenario.name << ", operation " << k << ", survival " << survival;
      }
    }
  }
}

TEST(StoreCrash, P18_GarbageCollectionLeavesTwoOnceTwoWereCommitted) {
  for (const int keep : {2, 3}) {
    MemoryFiles memory;
    CheckpointStore store(memory, kFolder, {.keep = keep});
    std::size_t committed = 0;
    std::int64_t newest = -1;
    // Complete ones, chains of increments, and a step that is saved twice.
    for (const auto& [step, base] : std::vector<std::pair<std::int64_t, bool>>{{10, false},
                                                                               {20, false},
                                                                               {30, true},
                                                                               {40, true},
                                                                               {50, false},
                                                                               {50, false},
                                                                               {60, true},
                                                                               {70, false},
                                                                               {80, false},
                                                                               {90, false}}) {
      const SaveResult result = base ? save_bias(store, step, newest) : save_step(store, step, 2);
      ASSERT_EQ(result.status, SaveStatus::kCommitted) << result.error;
      if (step != newest) ++committed;
      newest = step;
      EXPECT_GE(verified(store), std::min<std::size_t>(committed, static_cast<std::size_t>(keep))) << step;
      store.collect_garbage();
      EXPECT_GE(verified(store), std::min<std::size_t>(committed, static_cast<std::size_t>(keep))) << step;
    }
    EXPECT_EQ(verified(store), static_cast<std::size_t>(keep)) << "and removes the others";
  }
}

TEST(StoreCrash, P14_ACrashDuringRecoveryIsRecoveredFrom) {
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

// A fresh folder on the real file system, gone with the object.
class RealFolder {
 public:
  RealFolder() { EXPECT_NE(::mkdtemp(root_.data()), nullptr); }
  ~RealFolder() { remove_tree(*files_, root_); }
  RealFolder(const RealFolder&) = delete;
  RealFolder& operator=(const RealFolder&) = delete;
  FileSystem& files() { return *files_; }
  std::string checkpoints() const { return root_ + "/checkpoints"; }

 private:
  std::unique_ptr<FileSystem> files_ = make_posix_files();
  std::string root_ = ::testing::TempDir() + "tenon_killed_XXXXXX";
};

// Runs `save` in a process of its own and says whether SIGKILL ended it.
template <typename Save>
bool killed(Save save) {
  const pid_t child = ::fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    save();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST(StoreKilled, P14_AtEveryOperationOnTheRealFileSystem) {
  RealFolder folder;
  for (std::int64_t step = 1; step <= 2; ++step) {
    CheckpointStore store(folder.files(), folder.checkpoints(), {});
    ASSERT_EQ(save_step(store, step, 2).status, SaveStatus::kCommitted);
  }
  std::int64_t newest = 2;
  std::int64_t kills = 0;
  bool ended = false;
  // A write is tried twice: killed before it, and when half of it is in the file.
  for (std::int64_t k = 0; !ended; ++k) {
    for (const bool torn : {false, true}) {
      const std::int64_t step = newest + 1;
      ended = !killed([&] {
        FaultyFiles files(folder.files());
        CheckpointStore store(files, folder.checkpoints(), {});
        files.arm({.fail_at = k, .torn = torn, .kill = true});
        save_step(store, step, 2);
      });
      kills += ended ? 0 : 1;
      CheckpointStore store(folder.files(), folder.checkpoints(), {});
      const RestorePoint point = store.recover(false);
      EXPECT_TRUE(point.rejected.empty());
      ASSERT_TRUE(point.step == newest || point.step == step) << "operation " << k << ": " << point.step;
      if (ended) {
        EXPECT_EQ(point.step, step);
      }
      newest = point.step;
      store.collect_garbage();  // else every kill after the commit leaves the next save more to remove
      CheckpointReader reader = store.open(newest);
      TinyModel model(newest);
      ASSERT_TRUE(model.equals(reader)) << "operation " << k;
    }
  }
  EXPECT_GT(kills, 60);
}

TEST(StoreKilled, P14_InEveryPhaseOnTheRealFileSystem) {
  RealFolder folder;
  {
    CheckpointStore store(folder.files(), folder.checkpoints(), {});
    ASSERT_EQ(save_step(store, 1, 2).status, SaveStatus::kCommitted);
    ASSERT_EQ(save_step(store, 2, 2).status, SaveStatus::kCommitted);
  }
  std::int64_t step = 3;
  for (const std::string_view killed_in : {"write", "sync", "manifest", "verify", "rename", "gc", "done"}) {
    ASSERT_TRUE(killed([&] {
      const auto hook = [&](const char* phase) {
        if (phase == killed_in) ::kill(::getpid(), SIGKILL);
      };
      CheckpointStore store(folder.files(), folder.checkpoints(), {.keep = 2, .hook = hook});
      save_step(store, step, 2);
    })) << killed_in;
    const bool committed = killed_in == "gc" || killed_in == "done";
    CheckpointStore store(folder.files(), folder.checkpoints(), {});
    const RestorePoint point = store.recover(false);
    EXPECT_TRUE(point.rejected.empty());
    EXPECT_EQ(point.step, committed ? step : step - 1) << killed_in;
    CheckpointReader reader = store.open(point.step);
    TinyModel model(point.step);
    EXPECT_TRUE(model.equals(reader));
    if (committed) ++step;
  }
}

}  // namespace
}  // namespace tenon::store_crash_test
