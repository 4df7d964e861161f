// Work beside the operators (BackgroundWork): blocks end, a second thread may start them while operators run,
// and no bit of an operator changes. A device whose memory is the host's offers none.
#include "device_test.hpp"

#include <tenon/ops/dense.hpp>
#include <tenon/sdk/ops/background.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace tenon::testing::background_test {
namespace {

constexpr double kBlock = 1e-3;

bool ends(BackgroundWork& work) {
  const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (work.in_flight() > 0) {
    if (std::chrono::steady_clock::now() > last) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(Background, IsOfferedWhereTheDeviceHasMemoryOfItsOwn) {
  TestedDevice bench;
  EXPECT_EQ(bench.device->query(BackgroundWork::kId) != nullptr, bench.device->space() != MemorySpace::kHost);
}

TEST(Background, BlocksEndAndMayBeOpenedAgain) {
  TestedDevice bench;
  if (bench.device->space() == MemorySpace::kHost) return;
  auto& work = bench.device->family<BackgroundWork>();
  for (int turn = 0; turn < 2; ++turn) {
    const double seconds = work.open(kBlock);
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 1);
    EXPECT_EQ(work.in_flight(), 0);
    for (int block = 0; block < 5; ++block) {
      work.start_block();
      EXPECT_LE(work.in_flight(), block + 1);
    }
    EXPECT_TRUE(ends(work));
    work.start_block();
    work.close();  // in the middle of a block
    work.close();
  }
}

TEST(Background, ChangesNoBitOfTheOperators) {
  TestedDevice bench;
  Device& device = *bench.device;
  if (device.space() == MemorySpace::kHost) return;
  constexpr std::int64_t kSide = 48;
  std::vector<double> values(kSide * kSide);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
  const Owned a(device, {kSide, kSide}, DType::kF32, values), b(device, {kSide, kSide}, DType::kF32, values);
  GemmSpec spec;
  spec.m = spec.n = spec.k = kSide;
  const auto gemm = device.family<Blas>().gemm(spec);
  const auto product = [&] {
    const Owned c(device, {kSide, kSide}, DType::kF32),
        scratch(device, {static_cast<std::int64_t>(gemm->scratch_bytes())}, DType::kU8);
    gemm->run(a, b, c, {}, 1, scratch);
    device.synchronize();
    return c.bytes();
  };
  const auto alone = product();
  auto& work = device.family<BackgroundWork>();
  work.open(kBlock);
  std::atomic<bool> over{false};
  std::atomic<int> blocks{0};
  std::thread filler([&] {
    while (!over.load()) {
      if (work.in_flight() >= 2) continue;
      work.start_block();
      ++blocks;
    }
  });
  while (blocks.load() == 0) std::this_thread::yield();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(product(), alone);
  over = true;
  filler.join();
  EXPECT_TRUE(ends(work));
  work.close();
  EXPECT_EQ(product(), alone);
}

}  // namespace
}  // namespace tenon::testing::background_test
