// parallel_for: every item once, the same blocks for every number of threads, nesting, exceptions.
#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace tenon {
namespace {

class ParallelTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_parallel_threads(GetParam()); }
  void TearDown() override { set_parallel_threads(static_cast<int>(std::thread::hardware_concurrency())); }
};

TEST_P(ParallelTest, VisitsEveryItemOnceInTheSameBlocks) {
  for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
    for (const std::int64_t block : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> visits(count);
      std::atomic<int> wrong_blocks{0};
      parallel_for(count, block, [&](std::int64_t begin, std::int64_t end) {
        if (begin % block != 0 || end != std::min(count, begin + block)) ++wrong_blocks;
        for (std::int64_t i = begin; i < end; ++i) ++visits[i];
      });
      EXPECT_EQ(wrong_blocks, 0);
      for (const auto& visit : visits) ASSERT_EQ(visit, 1);
    }
  }
}

TEST_P(ParallelTest, ANestedLoopRunsSeriallyOnItsCaller) {
  std::atomic<int> elsewhere{0}, items{0};
  parallel_for(4, 1, [&](std::int64_t, std::int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(8, 1, [&](std::int64_t, std::int64_t) {
      ++items;
      if (GetParam() > 1 && std::this_thread::get_id() != outer) ++elsewhere;
    });
  });
  EXPECT_EQ(items, 32);
  EXPECT_EQ(elsewhere, 0);
}

TEST_P(ParallelTest, TheExceptionOfTheLowestBlockArrivesAfterAllBlocksRan) {
  for (int repetition = 0; repetition < 20; ++repetition) {
    std::atomic<int> ran{0};
    try {
      parallel_for(40, 2, [&](std::int64_t begin, std::int64_t) {
        ++ran;
        if (begin >= 10) throw Error(ErrorKind::kRun, "block " + std::to_string(begin));
      });
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "block 10");
    }
    EXPECT_EQ(ran, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelTest, testing::Values(1, 2, 3));

TEST(Parallel, ThreadsAreThoseOfTheCallingThread) {
  set_parallel_threads(3);
  int elsewhere = 0;
  std::thread([&] {
    set_parallel_threads(2);
    elsewhere = parallel_threads();
  }).join();
  EXPECT_EQ(elsewhere, 2);
  EXPECT_EQ(parallel_threads(), 3);
  set_parallel_threads(0);
  EXPECT_EQ(parallel_threads(), 1);
}

TEST(Parallel, UsesSeveralThreads) {
  set_parallel_threads(2);
  // Two blocks that wait for each other end only if two threads run them.
  std::atomic<int> arrived{0};
  std::atomic<bool> met{true};
  parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
    ++arrived;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived < 2 && met) {
      if (std::chrono::steady_clock::now() > limit) met = false;
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(met);
}

TEST(Parallel, RefusesABlockOfNothing) {
  EXPECT_THROW(parallel_for(4, 0, [](std::int64_t, std::int64_t) {}), Error);
}

}  // namespace
}  // namespace tenon
