// The protocol of several processes, played by one: files that change, or do not.
#include "simulate/launched.hpp"

#include "simulate/sample_writer.hpp"
#include "simulate/tasks.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace tenon::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Fn>
std::string error_of(Fn fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

class Launched : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
    char name[] = "/tmp/tenon-launched-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    wanted_.simulator = "darcy";
    wanted_.plugin = "tenon.porous";
    wanted_.plugin_version = "0.1.0";
    wanted_.config = "[simulator]\ntype = \"darcy\"\n";
    wanted_.samples = 7;
    wanted_.fields = {{"a", DType::kF32, Shape{2}, false}};
  }
  void TearDown() override {
    for (const char* name : kNames) ::unsetenv(name);
    remove_tree(*files_, folder_);
  }
  static constexpr const char* kNames[] = {
      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
      "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS"};

  std::unique_ptr<FileSystem> files_ = make_posix_files();
  std::string folder_;
  SimulationManifest wanted_;
};

TEST_F(Launched, ThePlaceIsWhatTheLauncherSays) {
  EXPECT_FALSE(launched());
  ::setenv("SLURM_PROCID", "0", 1);
  EXPECT_FALSE(launched()) << "a batch script that srun did not start";
  ::setenv("SLURM_STEP_NUM_TASKS", "3", 1);
  EXPECT_EQ(launched()->count, 3);
  ::setenv("PMI_RANK", "0", 1), ::setenv("PMI_SIZE", "1", 1);
  EXPECT_FALSE(launched()) << "one process is no launch";
  ::setenv("OMPI_COMM_WORLD_RANK", "4", 1), ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  EXPECT_EQ(error_of([] { launched(); }),
            "tenon simulate: OMPI_COMM_WORLD_RANK is 4, and OMPI_COMM_WORLD_SIZE is 4: expected less");
  ::setenv("OMPI_COMM_WORLD_RANK", "two", 1);
  EXPECT_EQ(error_of([] { launched(); }),
            "tenon simulate: OMPI_COMM_WORLD_RANK is 'two', expected a whole number of at least 0");
}

TEST_F(Launched, EveryTaskIsOneProcessesOwn) {
  std::vector<int> makers(7, 0);
  for (std::int64_t index = 0; index < 3; ++index) {
    SimulationManifest manifest = wanted_;
    Tasks tasks(manifest, 0, {index, 3});
    while (const auto next = tasks.take()) {
      ++makers[next->index];
      tasks.finished(next->index, "d");
    }
  }
  EXPECT_THAT(makers, ::testing::Each(1));
}

TEST_F(Launched, ProcessZeroTakesUpWhatOthersRecord) {
  const auto of = [](int digit) { return std::string(32, static_cast<char>('0' + digit)); };
  ResultFolder folder(*files_, folder_, wanted_);
  folder.manifest().finished[0] = of(0);
  Owner owner(*files_, folder, {0, 2});
  {
    ResultFolder share(*files_, folder_, wanted_, {1, 2});
    share.manifest().finished[1] = of(1);
    share.manifest().failed[3] = {"error", "CFL", 1};
    share.save(true);
  }
  tell_end(*files_, folder_, {1, 2}, {"", 2, 3, 4, 0.5});
  const NodeEnd others = owner.wait([] { return true; });
  EXPECT_EQ(others.cut_short, "");
  EXPECT_EQ(others.lost_workers, 2);
  EXPECT_EQ(others.repeated, 3);
  EXPECT_EQ(others.workers, 4);
  EXPECT_EQ(others.busy_s, 0.5);
  const SimulationManifest recorded = read_simulation(*files_, folder_);
  EXPECT_EQ(recorded.finished, (std::map<std::int64_t, std::string>{{0, of(0)}, {1, of(1)}}));
  EXPECT_EQ(recorded.failed.at(3).cause, "CFL");
}

TEST_F(Launched, OneThatIsSilentIsGivenUp) {
  ResultFolder folder(*files_, folder_, wanted_);
  Owner owner(*files_, folder, {0, 3}, 0.3);
  tell_end(*files_, folder_, {2, 3}, {});
  EXPECT_EQ(owner.wait([] { return true; }).cut_short, "process 1 of 3 has not been heard of for 0.3 s");
}

TEST_F(Launched, OthersBeginWhenProcessZeroNamesThemAndEndWhenItSaysSo) {
  const std::string not_opened = "process 0 has not opened '" + folder_ + "' for this one within 0.2 s; ";
  OwnerSeen early(*files_, folder_, 1, 0.2);
  EXPECT_THAT(error_of([&] { early.wait(wanted_); }), HasSubstr(not_opened));
  ResultFolder folder(*files_, folder_, wanted_);
  Owner owner(*files_, folder, {0, 2});
  OwnerSeen stale(*files_, folder_, 1, 0.2);
  EXPECT_THAT(error_of([&] { stale.wait(wanted_); }), HasSubstr(not_opened)) << "a file that does not change";
  /// Process 0 looks repeatedly while `seen` waits.
  const auto said = [&](OwnerSeen& seen, const SimulationManifest& mine) {
    std::atomic<bool> done{false};
    std::thread beat([&] {
      while (!done) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        owner.look(true);
      }
    });
    std::string text = error_of([&] { seen.wait(mine); });
    done = true;
    beat.join();
    return text;
  };
  SimulationManifest other = wanted_;
  other.seed = 9;
  OwnerSeen wrong(*files_, folder_, 1, 2);
  EXPECT_EQ(said(wrong, other),
            "process 0 opened '" + folder_ + "' for another simulation; start all with one configuration");
  OwnerSeen mine(*files_, folder_, 1, 10), second(*files_, folder_, 1, 1);
  EXPECT_EQ(said(mine, wanted_), "nothing");
  EXPECT_TRUE(mine.wants_more());
  EXPECT_THAT(said(second, wanted_), HasSubstr("is it in use")) << "the same place in another launch";
  owner.look(true, false);
  OwnerSeen late(*files_, folder_, 1, 0.2);
  EXPECT_THAT(error_of([&] { late.wait(wanted_); }), HasSubstr("has not opened"));
}

TEST_F(Launched, OneThatIsNamedNoMoreStops) {
  auto folder = std::make_unique<ResultFolder>(*files_, folder_, wanted_);
  auto owner = std::make_unique<Owner>(*files_, *folder, Place{0, 2});
  OwnerSeen mine(*files_, folder_, 1, 10);
  std::atomic<bool> done{false};
  std::thread beat([&] {
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      owner->look(true);
    }
  });
  EXPECT_EQ(error_of([&] { mine.wait(wanted_); }), "nothing");
  done = true;
  beat.join();
  owner.reset();
  owner = std::make_unique<Owner>(*files_, *folder, Place{0, 2});  // another launch
  EXPECT_FALSE(mine.wants_more());
}

TEST_F(Launched, WhatAProcessSaysAtItsEndIsReadStrictly) {
  const NodeEnd end = parse_node_end(node_end_text({"timeout_s is over", 1, 2, 3, 4.5}), "f");
  EXPECT_EQ(end.cut_short, "timeout_s is over");
  EXPECT_EQ(end.busy_s, 4.5);
  for (const char* text : {"", "1 2 3", "1 2 3 4", "-1 2 3 4 completed", "1 2 3 nan completed", "a b c d e"})
    EXPECT_THAT(error_of([&] { parse_node_end(text, "nodes/1.end"); }),
                HasSubstr("'nodes/1.end': expected four numbers"))
        << text;
}

}  // namespace
}  // namespace tenon::simulate
