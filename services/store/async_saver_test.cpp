// Background saves: the file has the values of the moment of the call, a busy saver skips, failures come back
// as results and never as exceptions into training, and nothing is allocated once the buffer has its size.
#include <tenon/checkpoint.hpp>

#include "base/testing/allocation_count.hpp"
#include "store/testing/faulty_files.hpp"
#include "store/testing/store_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace tenon::async_saver_test {
namespace {

using testing::FaultyFiles;
using testing::folder_names;
using ::testing::HasSubstr;
using testing::MemoryFiles;
using testing::TinyModel;

constexpr char kFolder[] = "/checkpoints";
constexpr double kDeadline = 20;

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

TEST_F(Async, P16_TheFileHasTheValuesOfTheMomentOfTheCall) {
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

TEST_F(Async, P16_RowsPayloadsAndMetaAreCopiedToo) {
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

// The disk takes a hundred times as long as before. Training asks for a save in every step: nearly all of
// them are skipped, none of them waits, and what is committed is the state of one step.
TEST_F(Async, F5_ADiskAHundredTimesSlowerSkipsSavesAndMixesNone) {
  AsyncSaver saver(store_, 0, 1, solo_, {});
  const auto seconds_of = [](const auto& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  TinyModel model(0);
  files_.arm({});
  const double fast_s = seconds_of([&] {
    ASSERT_TRUE(saver.save(request_of(0, model.items(0, 1))));
    saver.wait(kDeadline);
  });
  const std::vector<std::string> trace = files_.trace();
  const auto writes =
      std::ranges::count_if(trace, [](const auto& line) { return line.starts_with("append"); });
  const double slow_s = 100 * std::max(fast_s, 5e-4);
  files_.arm({.slow_seconds = slow_s / static_cast<double>(writes)});

  constexpr int kGenerations = 3;
  int committed = 0, skipped = 0;
  double longest_s = 0;
  const auto count = [&] {
    for (const SaveResult& result : saver.take_results()) {
      EXPECT_NE(result.status, SaveStatus::kAborted) << result.error;
      skipped += result.status == SaveStatus::kSkipped ? 1 : 0;
      if (result.status != SaveStatus::kCommitted || result.step == 0) continue;
      ++committed;
      CheckpointReader reader = store_.open(result.step);
      TinyModel expected(result.step);
      EXPECT_TRUE(expected.equals(reader)) << "step " << result.step;
    }
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kDeadline);
  for (std::int64_t step = 1; committed < kGenerations && std::chrono::steady_clock::now() < end; ++step) {
    // The tensors are updated in place, also while an earlier step is being written.
    const TinyModel next(step);
    for (const TensorSpec& spec : model.specs()) model.bytes(spec.name) = TinyModel(next).bytes(spec.name);
    const std::vector<SaveItem> items = model.items(0, 1);
    longest_s = std::max(longest_s, seconds_of([&] { saver.save(request_of(step, items)); }));
    std::this_thread::sleep_for(std::chrono::duration<double>(slow_s / 50));
    count();
  }
  EXPECT_EQ(committed, kGenerations);
  EXPECT_GT(skipped, 10 * kGenerations);
  EXPECT_LT(longest_s, slow_s) << "training waited for the disk";
}

TEST_F(Async, F4_AFullDiskAndFailedCopiesAreResults) {
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
  AsyncSaver saver(store_, 0, 1, solo_, {});
  TinyModel model(1);
  const std::vector<SaveItem> items = model.items(0, 1);
  const MetaBlock meta[] = {{"reader", std::string(100, 'x')}};
  SaveRequest request = request_of(1, items);
  request.meta = meta;
  for (std::int64_t step = 1; step <= 4; ++step) {
    request.step = step;
    const std::int64_t before = testing::allocation_count();
    ASSERT_TRUE(saver.save(request));
    const std::int64_t used = testing::allocation_count() - before;
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

}  // namespace
}  // namespace tenon::async_saver_test
