// Saves by several ranks, each a thread with a saver of its own: they skip, commit and abort together,
// whichever of them fails, and wherever.
#include <tenon/checkpoint.hpp>

#include "store/testing/faulty_files.hpp"
#include "store/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tenon::saver_ranks_test {
namespace {

using testing::FaultPlan;
using testing::FaultyFiles;
using testing::folder_names;
using ::testing::HasSubstr;
using testing::kFolder;
using testing::MemoryFiles;
using testing::save_step;
using testing::TinyModel;

constexpr double kDeadline = 20;

// Ranks as threads: each call is a rendezvous of all, with a deadline.
class ThreadAllGather {
 public:
  explicit ThreadAllGather(int ranks) : ranks_(ranks), texts_(ranks) {}

  std::vector<std::string> gather(int rank, const std::string& text) {
    std::unique_lock lock(mutex_);
    texts_[rank] = text;
    const std::int64_t round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      ++round_;
      complete_ = texts_;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(deadline),
                                  [&] { return round_ != round; })) {
      throw DeadlineError("a rank did not join the exchange");
    }
    return complete_;
  }

  double deadline = kDeadline;

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;
  std::vector<std::string> complete_;
  int arrived_ = 0;
  std::int64_t round_ = 0;
};

struct World {
  explicit World(int ranks) : save(ranks), train(ranks) {}
  ThreadAllGather save;
  ThreadAllGather train;
};

class ThreadExchange final : public SaveExchange {
 public:
  ThreadExchange(World& world, int rank) : world_(world), rank_(rank) {}
  std::vector<std::string> gather(const std::string& text) override {
    std::vector<std::string> all = world_.save.gather(rank_, text);
    return rank_ == 0 ? all : std::vector<std::string>();
  }
  std::string broadcast(const std::string& text) override { return world_.save.gather(rank_, text)[0]; }
  bool any(bool mine) override {
    for (const std::string& text : world_.train.gather(rank_, mine ? "1" : "0")) {
      if (text == "1") return true;
    }
    return false;
  }

 private:
  World& world_;
  int rank_;
};

class SaverRanks : public ::testing::Test {
 protected:
  MemoryFiles memory_;
  FaultyFiles files_{memory_};
  CheckpointStore store_{files_, kFolder, {}};
};

// Each rank trains on its own thread with its own saver; returns the results of all ranks.
std::vector<std::vector<SaveResult>> run_world(
    int ranks, const std::function<CheckpointStore&(int)>& store_of, World& world,
    const std::function<void(int, TinyModel&, std::vector<SaveItem>&)>& change, std::int64_t first,
    std::int64_t last) {
  std::vector<std::vector<SaveResult>> results(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadExchange exchange(world, rank);
      AsyncSaver saver(store_of(rank), rank, ranks, exchange, {});
      for (std::int64_t step = first; step <= last; ++step) {
        TinyModel model(step);
        std::vector<SaveItem> items = model.items(rank, ranks);
        change(rank, model, items);
        SaveRequest request;
        request.step = step;
        request.items = items;
        saver.save(request);
      }
      saver.wait(kDeadline);
      results[rank] = saver.take_results();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST_F(SaverRanks, F5_OnASlowDiskRanksSkipAndCommitTogether) {
  files_.arm({.slow_seconds = 0.002});
  World world(3);
  const auto results = run_world(
      3, [this](int) -> CheckpointStore& { return store_; }, world,
      [](int, TinyModel&, std::vector<SaveItem>&) {}, 1, 20);
  ASSERT_EQ(results[0].size(), 20u);
  std::int64_t committed = 0;
  std::int64_t newest = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    for (int rank = 1; rank < 3; ++rank) {
      const SaveResult& mine = results[rank][i];
      EXPECT_EQ(mine.status, results[0][i].status);
      EXPECT_EQ(mine.step, results[0][i].step);
    }
    EXPECT_NE(results[0][i].status, SaveStatus::kAborted) << results[0][i].error;
    if (results[0][i].status == SaveStatus::kCommitted) {
      ++committed;
      newest = std::max(newest, results[0][i].step);
    }
  }
  EXPECT_GT(committed, 0);
  EXPECT_EQ(store_.recover(false).step, newest);
  for (const std::int64_t step : store_.generations()) {
    CheckpointReader reader = store_.open(step);
    TinyModel model(step);
    EXPECT_TRUE(model.equals(reader)) << step;
  }
}

TEST_F(SaverRanks, P17_ACopyThatFailsOnOneRankAbortsEverywhere) {
  for (int culprit = 0; culprit < 3; ++culprit) {
    World world(3);
    const auto results = run_world(
        3, [this](int) -> CheckpointStore& { return store_; }, world,
        [&](int rank, TinyModel&, std::vector<SaveItem>& items) {
          if (rank == culprit) items[0].data.space = MemorySpace::kCuda;
        },
        1, 1);
    for (const std::vector<SaveResult>& of_rank : results) {
      ASSERT_EQ(of_rank.size(), 1u);
      EXPECT_EQ(of_rank[0].status, SaveStatus::kAborted);
      EXPECT_THAT(of_rank[0].error, HasSubstr("rank " + std::to_string(culprit) + ": copy failed"));
    }
    EXPECT_TRUE(folder_names(memory_, kFolder).empty());
  }
}

// Every rank writes through files of its own that are in one folder, as processes do, and one operation of
// one rank fails. A generation stands, for every rank, exactly if all of them were told so.
TEST_F(SaverRanks, P17_AWriteThatFailsOnOneRankLeavesNoGenerationToAny) {
  constexpr int kRanks = 3;
  int aborted = 0;
  for (int culprit = 0; culprit < kRanks; ++culprit) {
    for (std::int64_t k = 0;; ++k) {
      SCOPED_TRACE("rank " + std::to_string(culprit) + ", operation " + std::to_string(k));
      MemoryFiles memory;
      std::vector<std::unique_ptr<FaultyFiles>> files;
      std::vector<std::unique_ptr<CheckpointStore>> stores;
      for (int rank = 0; rank < kRanks; ++rank) {
        files.push_back(std::make_unique<FaultyFiles>(memory));
        stores.push_back(std::make_unique<CheckpointStore>(*files.back(), kFolder, StoreOptions{}));
      }
      save_step(*stores[0], 1, kRanks);
      FaultyFiles& broken = *files[culprit];
      broken.arm({.fail_at = k});
      World world(kRanks);
      const auto results = run_world(
          kRanks, [&](int rank) -> CheckpointStore& { return *stores[rank]; }, world,
          [](int, TinyModel&, std::vector<SaveItem>&) {}, 2, 2);
      if (broken.operations() <= k) break;  // it did not come to fail
      broken.arm({});
      const SaveStatus status = results[0].at(0).status;
      if (culprit != 0) {
        EXPECT_EQ(status, SaveStatus::kAborted);
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        const SaveResult& mine = results[rank].at(0);
        EXPECT_EQ(mine.status, status) << rank;
        const std::vector<std::int64_t> seen = stores[rank]->generations();
        if (status == SaveStatus::kAborted) {
          EXPECT_THAT(mine.error, HasSubstr("injected")) << rank;
          EXPECT_EQ(seen, (std::vector<std::int64_t>{1})) << rank;
        } else {
          EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 2})) << rank;
        }
      }
      aborted += status == SaveStatus::kAborted ? 1 : 0;
      EXPECT_EQ(stores[0]->recover(false).step, status == SaveStatus::kAborted ? 1 : 2);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(aborted, 40);
}

TEST_F(SaverRanks, ALostRankEndsInADeadlineNotInAGeneration) {
  World world(2);
  world.save.deadline = 0.05;
  ThreadExchange exchange(world, 0);
  TinyModel model(1);
  const std::vector<SaveItem> items = model.items(0, 2);
  SaveRequest request;
  request.step = 1;
  request.items = items;
  const SaveResult result = store_.save(request, 0, 2, exchange);
  EXPECT_EQ(result.status, SaveStatus::kAborted);
  EXPECT_THAT(result.error, HasSubstr("did not join the exchange"));
  EXPECT_TRUE(folder_names(memory_, kFolder).empty());
}

}  // namespace
}  // namespace tenon::saver_ranks_test
