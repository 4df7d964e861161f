// Random histories of the store: saves by one to three ranks, complete or increments, each of which may meet
// a full disk, a short write, a failed operation or the death of the process at a random place; then it is
// recovered, or goes on. Whatever is drawn, loading finds the newest generation that was committed or the one
// that was being written, bit for bit: a failure costs one interval at most.
//
// A trial is a function of its seed, and a failure names it. TENON_TRIALS=1000 TENON_SEED=<n> runs the trials
// with the seeds n, n + 1, ...; ctest runs 50, scripts/soak 1,000.
#include <tenon/checkpoint.hpp>

#include "store/testing/store_scenarios.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace tenon::store_trials_test {
namespace {

using testing::FaultPlan;
using testing::FaultyFiles;
using testing::kFolder;
using testing::MemoryFiles;
using testing::Outcome;
using testing::save_as_world;
using testing::TinyModel;

enum Fault { kNone, kFullDisk, kShortWrite, kError, kKill, kFaults };
constexpr std::array<const char*, kFaults> kNames = {"undisturbed", "full disks", "short writes",
                                                     "failed operations", "kills"};

struct Counts {
  std::array<int, kFaults> saves{};
  std::array<int, kFaults> committed{};
};

class Trial {
 public:
  explicit Trial(std::uint64_t seed)
      : random_(seed), keep_(2 + below(2)), store_(std::make_unique<CheckpointStore>(make_store())) {}

  void run(Counts& counts) {
    const int saves = 3 + below(6);
    for (int i = 0; i < saves && !::testing::Test::HasFailure(); ++i) save(counts);
    recover();
    // Generations that garbage collection kept are whole as well.
    for (const std::int64_t step : store_->generations()) expect_content(step);
  }

 private:
  int below(std::int64_t n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  CheckpointStore make_store() { return {files_, kFolder, {.keep = keep_}}; }

  FaultPlan plan_of(Fault fault) {
    // An operation of a save like the ones before, or one after its end: then nothing happens.
    const std::int64_t operation = below(operations_ + 3);
    switch (fault) {
      case kFullDisk:
        if (below(2) == 0) return {.byte_budget = below(bytes_ + 1)};
        return {.fail_at = operation, .code = ENOSPC};
      case kShortWrite:
        return {.fail_at = operation, .code = EIO, .torn = true};
      case kError:
        return {.fail_at = operation, .code = EIO};
      case kKill:
        return {.fail_at = operation, .torn = below(2) == 0, .dead_after = true};
      default:
        return {};
    }
  }

  void save(Counts& counts) {
    const bool increment = newest_ >= 0 && below(3) == 0;
    const bool again = newest_ >= 0 && !increment && below(4) == 0;
    const std::int64_t step = again ? newest_ : newest_ + 1 + below(20);
    // No two saves of a trial have equal content, so what is read back says whose it is.
    TinyModel model(++saves_);
    const Outcome outcome{step,
                          increment ? testing::model_with_bias_of(saves_, content_.at(newest_)) : model};
    const auto fault = below(2) == 0 ? kNone : static_cast<Fault>(1 + below(kFaults - 1));
    files_.arm(plan_of(fault));
    const SaveResult result = increment ? save_increment(step, model) : save_whole(step, model, 1 + below(3));
    operations_ = std::max(operations_, files_.operations());
    bytes_ = std::max(bytes_, files_.bytes_written());
    files_.arm({});
    const bool committed = result.status == SaveStatus::kCommitted;
    ++counts.saves[fault];
    counts.committed[fault] += committed ? 1 : 0;
    if (fault == kNone) {
      EXPECT_TRUE(committed) << result.error;
    }
    if (committed) now_at(outcome);
    if (fault == kKill) {
      memory_.crash(static_cast<MemoryFiles::Survival>(below(3)), random_());
      store_ = std::make_unique<CheckpointStore>(make_store());
      recover(&outcome);
    } else if (below(3) == 0) {
      recover();
    }
  }

  SaveResult save_whole(std::int64_t step, TinyModel& model, int world) {
    SaveRequest request;
    request.step = step;
    request.timeline = timeline_;
    return save_as_world(*store_, model, request, world);
  }

  SaveResult save_increment(std::int64_t step, TinyModel& model) {
    const SaveItem item{"bias", model.view("bias"), Shape{5}, Shape{0}};
    SaveRequest request;
    request.step = step;
    request.timeline = timeline_;
    request.base = newest_;
    request.items = {&item, 1};
    return store_->commit(step, std::vector<std::string>{store_->write_part(request, 0, 1)});
  }

  void now_at(const Outcome& outcome) {
    newest_ = outcome.step;
    content_.insert_or_assign(outcome.step, outcome.model);
  }

  // Training goes on from what is found: the newest committed generation, or the one that was being written
  // when the process died.
  void recover(const Outcome* in_flight = nullptr) {
    const RestorePoint point = store_->recover(false);
    for (const RejectedGeneration& rejected : point.rejected) ADD_FAILURE() << rejected.reason;
    if (in_flight != nullptr && point.step >= 0 && in_flight->is_found(*store_, point.step)) {
      now_at(*in_flight);
    } else {
      ASSERT_EQ(point.step, newest_) << "a committed generation was lost";
      if (newest_ >= 0) expect_content(newest_);
    }
    timeline_ += below(2);
  }

  void expect_content(std::int64_t step) {
    CheckpointReader reader = store_->open(step);
    EXPECT_TRUE(TinyModel(content_.at(step)).equals(reader)) << "content of step " << step;
  }

  std::mt19937_64 random_;
  MemoryFiles memory_;
  FaultyFiles files_{memory_};
  const int keep_;
  std::unique_ptr<CheckpointStore> store_;
  std::map<std::int64_t, TinyModel> content_;  // by step
  std::int64_t newest_ = -1;                   // committed
  std::int64_t timeline_ = 0;
  std::int64_t saves_ = 0;
  std::int64_t operations_ = 80;  // of the longest save so far
  std::int64_t bytes_ = 4000;
};

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(StoreTrials, LoseOneIntervalAtMost) {
  const std::uint64_t trials = number_from("TENON_TRIALS", 50);
  const std::uint64_t first = number_from("TENON_SEED", 1);
  Counts counts;
  for (std::uint64_t i = 0; i < trials; ++i) {
    SCOPED_TRACE("to see this trial alone: TENON_TRIALS=1 TENON_SEED=" + std::to_string(first + i));
    Trial(first + i).run(counts);
    if (HasFailure()) return;
  }
  std::printf("%llu trials, seeds from %llu\n", static_cast<unsigned long long>(trials),
              static_cast<unsigned long long>(first));
  for (int fault = 0; fault < kFaults; ++fault) {
    const std::size_t at = fault;
    std::printf("  %-18s %5d saves, %5d committed\n", kNames[at], counts.saves[at], counts.committed[at]);
    if (trials >= 50) {
      EXPECT_GT(counts.saves[at], 0) << kNames[at];
    }
  }
}

}  // namespace
}  // namespace tenon::store_trials_test
