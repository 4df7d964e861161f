// The wall clock of a run when the machine's clock is set back: this program replaces the system's call, so
// that the real time loses an hour at every look, and the run's clock must not notice.
#include <tenon/clock.hpp>

#include <gtest/gtest.h>

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

namespace {
std::atomic<int> looks{0};
}

extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, out));
  if (result == 0 && clock == CLOCK_REALTIME) out->tv_sec -= 3600 * ++looks;
  return result;
}

namespace tenon {
namespace {

TEST(ClockSetBack, F12_TheRunsTimeNeverDecreases) {
  const std::unique_ptr<Clock> clock = make_wall_clock();
  double before = clock->now();
  EXPECT_GE(before, 0);
  auto real = std::chrono::system_clock::now();
  for (int round = 0; round < 1000; ++round) {
    const auto set_back = std::chrono::system_clock::now();
    EXPECT_LT(set_back, real) << "the system's clock was not replaced";
    real = set_back;
    const double now = clock->now();
    EXPECT_GE(now, before);
    EXPECT_LT(now - before, 60);
    before = now;
  }
  EXPECT_GE(looks, 1000);
}

}  // namespace
}  // namespace tenon
