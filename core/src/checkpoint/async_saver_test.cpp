// Background saves: the file has the values of the moment of the call, a busy saver skips on all ranks,
// failures come back as results and never as exceptions into training, and nothing is allocated once the
// buffer has its size.
#include <tenon/checkpoint.hpp>

#include "checkpoint/testing/faulty_files.hpp"
#include "checkpoint/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

namespace {
thread_local std::int64_t allocations_of_this_thread = 0;
}

// The address sanitizer has its own operator new, and two of them in one program do not mix.
#if !defined(__SANITIZE_ADDRESS__)
constexpr bool kCountsAllocations = true;
// Not inlined: GCC would otherwise see malloc on one side only and warn of a mismatch.
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++allocations_of_this_thread;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#else
constexpr bool kCountsAllocations = false;
#endif

namespace tenon {
namespace {

using testing::FaultyFiles;
using testing::folder_names;
using ::testing::HasSubstr;
using testing::MemoryFiles;
using testing::TinyModel;

constexpr char kFolder[] = "/checkpoints";
constexpr double kDeadline = 20;

// Ranks as threads: each call is a rendezvous of all, with a deadline.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks), texts_(static_cast<std::size_t>(ranks)) {}

  std::vector<std::string> meet(int rank, const std::string& text) {
    std::unique_lock lock(mutex_);
    texts_[static_cast<std::size_t>(rank)] = text;
    const std::int64_t round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      ++round_;
      complete_ = texts_;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(deadline),
                                  [&] { return round_ != round; })) {
      throw DeadlineError("a rank did not come to the meeting");
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
  Meeting save;
  Meeting train;
};

class ThreadExchange final : public SaveExchange {
 public:
  ThreadExchange(World& world, int rank) : world_(world), rank_(rank) {}
  std::vector<std::string> gather(const std::string& text) override {
    std::vector<std::string> all = world_.save.meet(rank_, text);
    return rank_ == 0 ? all : std::vector<std::string>();
  }
  std::string broadcast(const std::string& text) override { return world_.save.meet(rank_, text)[0]; }
  bool any(bool mine) override {
    for (const std::string& text : world_.train.meet(rank_, mine ? "1" : "0")) {
      if (text == "1") return true;
    }
    return false;
  }

 private:
  World& world_;
  int rank_;
};

SaveRequest request_of(std::int64_t step, std::span<const SaveItem> items) {
  SaveRequest request;
  request.step = step;
  request.items = items;
  return request;
}

class Async : public ::testing::Test {
 protected:
  MemoryFiles memory_;
  FaultyFiles files_{memory_};
  CheckpointStore store_{files_, kFolder, {}};
  SoloExchange solo_;
};

TEST_F(Async, TheFileHasTheValuesOfTheMomentOfTheCall) {
  files_.arm({.slow_seconds = 0.01});
  AsyncSaver saver(store_, 0, 1, solo_, {});
  for (const std::int64_t step : {1, 2, 3}) {
    TinyModel model(step);
    const TinyModel kept = model;
    const std::vector<SaveItem> items = model.items(0, 1);
    ASSERT_TRUE(saver.save(request_of(step, items)));
    for (const TensorSpec& spec : model.specs()) {
      std::ranges::fill(model.bytes(spec.name), std::byte{0xff});
    }
    saver.wait(kDeadline);
    const std::vector<SaveResult> results = saver.take_results();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].status, SaveStatus::kCommitted) << results[0].error;
    EXPECT_EQ(results[0].step, step);
    EXPECT_GT(results[0].write_s, 0.01);
    EXPECT_GT(results[0].commit_s, 0.01);
    EXPECT_LT(results[0].copy_s, results[0].write_s);
    EXPECT_GT(results[0].bytes, 300);
    CheckpointReader reader = store_.open(step);
    TinyModel expected = kept;
    EXPECT_TRUE(expected.equals(reader));
  }
}

TEST_F(Async, RowsPayloadsAndMetaAreCopiedToo) {
  files_.arm({.slow_seconds = 0.01});
  AsyncSaver saver(store_, 0, 1, solo_, {});
  {
    std::vector<std::int64_t> rows{0, 2, 1};
    std::ranges::sort(rows);
    std::vector<float> values{1, 2, 3};
    std::string payload = "payload";
    SaveItem items[2] = {{"table", {values.data(), Shape{3}, DType::kF32}, Shape{3}, Shape{0}},
                         {"coded", {nullptr, Shape{4}, DType::kU8}, Shape{4}, Shape{0}}};
    items[0].rows = rows;
    items[1].encoding = "own";
    items[1].payload = std::as_bytes(std::span(payload));
    MetaBlock meta{"reader", "here"};
    SaveRequest request = request_of(7, items);
    request.meta = {&meta, 1};
    ASSERT_TRUE(saver.save(request));
    std::ranges::fill(rows, 99);
    std::ranges::fill(values, 99.0f);
    payload.assign(payload.size(), '?');
    meta.value = "there";
  }
  saver.wait(kDeadline);
  ASSERT_EQ(saver.take_results().at(0).error, "");
  CheckpointReader reader = store_.open(7);
  EXPECT_EQ(*reader.meta("reader"), "here");
  std::vector<float> values(3);
  reader.read("table", {values.data(), Shape{3}, DType::kF32});
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  reader.add_decoder("own", [](const EncodedPart& part, std::span<std::byte> out) {
    std::memcpy(out.data(), part.payload.data(), out.size());
  });
  std::string coded(4, ' ');
  reader.read("coded", {coded.data(), Shape{4}, DType::kU8});
  EXPECT_EQ(coded, "payl");
}

TEST_F(Async, ABusySaverSkips) {
  files_.arm({.slow_seconds = 0.05});
  AsyncSaver saver(store_, 0, 1, solo_, {});
  TinyModel model(1);
  const std::vector<SaveItem> items = model.items(0, 1);
  EXPECT_TRUE(saver.save(request_of(1, items)));
  EXPECT_TRUE(saver.busy());
  EXPECT_FALSE(saver.save(request_of(2, items)));
  EXPECT_THROW(saver.wait(0.001), DeadlineError);
  saver.wait(kDeadline);
  EXPECT_FALSE(saver.busy());
  const std::vector<SaveResult> results = saver.take_results();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].status, SaveStatus::kSkipped);
  EXPECT_EQ(results[0].step, 2);
  EXPECT_EQ(results[1].status, SaveStatus::kCommitted);
  EXPECT_TRUE(saver.take_results().empty());
  EXPECT_EQ(store_.generations(), (std::vector<std::int64_t>{1}));
}

TEST_F(Async, FailuresAreResults) {
  AsyncSaver saver(store_, 0, 1, solo_, {});
  TinyModel model(1);
  std::vector<SaveItem> items = model.items(0, 1);
  const auto outcome = [&](std::int64_t step) {
    EXPECT_TRUE(saver.save(request_of(step, items)));
    saver.wait(kDeadline);
    const std::vector<SaveResult> results = saver.take_results();
    return results.at(0).status == SaveStatus::kAborted ? results.at(0).error : std::string("committed");
  };
  EXPECT_EQ(outcome(1), "committed");
  files_.arm({.byte_budget = 100});
  EXPECT_THAT(outcome(2), HasSubstr("full disk"));
  files_.arm({});
  items[0].data.space = MemorySpace::kCuda;
  EXPECT_THAT(outcome(3), HasSubstr("copy failed: tensor 'bias' is not in host memory"));
  items[0].data.space = MemorySpace::kHost;
  EXPECT_EQ(outcome(4), "committed");
  EXPECT_EQ(folder_names(memory_, kFolder), (std::vector<std::string>{"step-1", "step-4"}));
}

TEST_F(Async, ACopierReachesOtherMemory) {
  TinyModel model(1);
  std::vector<SaveItem> items = model.items(0, 1);
  for (SaveItem& item : items) item.data.space = MemorySpace::kCuda;
  AsyncSaver saver(store_, 0, 1, solo_, [](const TensorView& from, std::span<std::byte> to) {
    ASSERT_EQ(from.space, MemorySpace::kCuda);
    std::memcpy(to.data(), from.data, to.size());
  });
  ASSERT_TRUE(saver.save(request_of(1, items)));
  saver.wait(kDeadline);
  EXPECT_EQ(saver.take_results().at(0).error, "");
  CheckpointReader reader = store_.open(1);
  EXPECT_TRUE(model.equals(reader));
}

TEST_F(Async, NothingIsAllocatedOnTheTrainingThreadAfterTheFirstSave) {
  if (!kCountsAllocations) GTEST_SKIP() << "the address sanitizer counts allocations itself";
  AsyncSaver saver(store_, 0, 1, solo_, {});
  TinyModel model(1);
  const std::vector<SaveItem> items = model.items(0, 1);
  const MetaBlock meta[] = {{"reader", std::string(100, 'x')}};
  SaveRequest request = request_of(1, items);
  request.meta = meta;
  for (std::int64_t step = 1; step <= 4; ++step) {
    request.step = step;
    const std::int64_t before = allocations_of_this_thread;
    ASSERT_TRUE(saver.save(request));
    const std::int64_t used = allocations_of_this_thread - before;
    if (step == 1) {
      EXPECT_GT(used, 0) << "the counter works";
    } else {
      EXPECT_EQ(used, 0) << step;
    }
    saver.wait(kDeadline);
  }
}

TEST_F(Async, DestructionFinishesTheSaveInFlight) {
  files_.arm({.slow_seconds = 0.02});
  {
    AsyncSaver saver(store_, 0, 1, solo_, {});
    TinyModel model(1);
    ASSERT_TRUE(saver.save(request_of(1, model.items(0, 1))));
  }
  EXPECT_EQ(store_.recover(false).step, 1);
}

TEST_F(Async, TheHookSeesTheCopyAndAThrowAborts) {
  std::vector<std::string> phases;
  std::mutex mutex;
  std::atomic<bool> fail{false};
  CheckpointStore store(files_, kFolder, {.keep = 2, .hook = [&](const char* phase) {
                                            const std::lock_guard lock(mutex);
                                            phases.emplace_back(phase);
                                            if (fail && phases.back() == "copy")
                                              fail_run("killed while copying");
                                          }});
  AsyncSaver saver(store, 0, 1, solo_, {});
  TinyModel model(1);
  const std::vector<SaveItem> items = model.items(0, 1);
  ASSERT_TRUE(saver.save(request_of(1, items)));
  saver.wait(kDeadline);
  EXPECT_EQ(phases, (std::vector<std::string>{"copy", "write", "sync", "manifest", "verify", "rename", "gc",
                                              "done"}));
  fail = true;
  ASSERT_TRUE(saver.save(request_of(2, items)));
  saver.wait(kDeadline);
  EXPECT_THAT(saver.take_results().at(1).error, HasSubstr("killed while copying"));
}

// Each rank trains on its own thread with its own saver; returns the results of all ranks.
std::vector<std::vector<SaveResult>> run_world(
    int ranks, CheckpointStore& store, World& world,
    const std::function<void(int, TinyModel&, std::vector<SaveItem>&)>& change, std::int64_t steps) {
  std::vector<std::vector<SaveResult>> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadExchange exchange(world, rank);
      AsyncSaver saver(store, rank, ranks, exchange, {});
      for (std::int64_t step = 1; step <= steps; ++step) {
        TinyModel model(step);
        std::vector<SaveItem> items = model.items(rank, ranks);
        change(rank, model, items);
        saver.save(request_of(step, items));
      }
      saver.wait(kDeadline);
      results[static_cast<std::size_t>(rank)] = saver.take_results();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST_F(Async, RanksSkipAndCommitTogether) {
  files_.arm({.slow_seconds = 0.002});
  World world(3);
  const auto results = run_world(
      3, store_, world, [](int, TinyModel&, std::vector<SaveItem>&) {}, 20);
  ASSERT_EQ(results[0].size(), 20u);
  std::int64_t committed = 0;
  std::int64_t newest = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    for (int rank = 1; rank < 3; ++rank) {
      const SaveResult& mine = results[static_cast<std::size_t>(rank)][i];
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
  CheckpointReader reader = store_.open(newest);
  TinyModel model(newest);
  EXPECT_TRUE(model.equals(reader));
}

TEST_F(Async, OneFailingRankAbortsEverywhere) {
  for (int culprit = 0; culprit < 3; ++culprit) {
    World world(3);
    const auto results = run_world(
        3, store_, world,
        [&](int rank, TinyModel&, std::vector<SaveItem>& items) {
          if (rank == culprit) items[0].data.space = MemorySpace::kCuda;
        },
        1);
    for (const std::vector<SaveResult>& of_rank : results) {
      ASSERT_EQ(of_rank.size(), 1u);
      EXPECT_EQ(of_rank[0].status, SaveStatus::kAborted);
      EXPECT_THAT(of_rank[0].error, HasSubstr("rank " + std::to_string(culprit) + ": copy failed"));
    }
    EXPECT_TRUE(folder_names(memory_, kFolder).empty());
  }
}

TEST_F(Async, ALostRankEndsInADeadlineNotInAGeneration) {
  World world(2);
  world.save.deadline = 0.05;
  ThreadExchange exchange(world, 0);
  TinyModel model(1);
  const std::vector<SaveItem> items = model.items(0, 2);
  const SaveResult result = store_.save(request_of(1, items), 0, 2, exchange);
  EXPECT_EQ(result.status, SaveStatus::kAborted);
  EXPECT_THAT(result.error, HasSubstr("did not come"));
  EXPECT_TRUE(folder_names(memory_, kFolder).empty());
}

}  // namespace
}  // namespace tenon
