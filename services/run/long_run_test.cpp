// Bounds of a run with many planned slots: the peak of a schedule, and the account of wall time.
#include "failover/wall_time_breakdown.hpp"
#include "loop/update.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

namespace tenon::train {
namespace {

/// Rises to slot `top`, then falls over `fall` slots.
class Tent final : public Schedule {
 public:
  Tent(std::int64_t top, double fall) : top_(top), fall_(fall) {}
  double rate(const SchedulePoint& at) const override {
    ++asked;
    const auto slot = static_cast<double>(at.slot), top = static_cast<double>(top_);
    return at.base_lr * (at.slot <= top_ ? (slot + 1) / (top + 1) : std::exp(-(slot - top) / fall_));
  }
  mutable std::int64_t asked = 0;

 private:
  std::int64_t top_;
  double fall_;
};

TEST(PeakRate, IsExactForOnePeakWhereverItIsAndAsksFewSlots) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t steps :
       {std::int64_t{1}, std::int64_t{1000}, std::int64_t{1} << 20, (std::int64_t{1} << 20) + 77,
        std::int64_t{1000000000}, std::int64_t{1} << 53, kMost}) {
    for (const double at : {0.0, 1e-9, 0.3, 0.77777, 0.9999999, 1.0}) {
      const double place = at * static_cast<double>(steps);
      const std::int64_t top =
          place < static_cast<double>(steps) ? static_cast<std::int64_t>(place) : steps - 1;
      const Tent tent(top, std::max(1.0, static_cast<double>(steps) / 10));
      EXPECT_EQ(peak_rate(tent, steps, 0.25), 0.25) << steps << " slots, peak at " << top;
      EXPECT_LT(tent.asked, 2000000);
    }
  }
}

void work(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) continue;
}

using Entry = WallTimeBreakdown::Entry;

TEST(WallTimeBreakdown, GivesBackTheWorkOfSlotsThatAreLost) {
  WallTimeBreakdown wall_time;
  wall_time.enter(Entry::kWork);
  for (std::int64_t slot = 1; slot <= 4; ++slot) {
    work(0.002);
    wall_time.slots_done(slot);
  }
  const double all = wall_time.seconds(Entry::kWork);
  wall_time.back_to(1);
  EXPECT_GE(wall_time.seconds(Entry::kWork), 0.002);
  EXPECT_GE(wall_time.seconds(Entry::kRepeat), 0.006);
  EXPECT_NEAR(wall_time.seconds(Entry::kWork) + wall_time.seconds(Entry::kRepeat), all, 0.001);
  wall_time.back_to(0);
  EXPECT_NEAR(wall_time.seconds(Entry::kWork), 0, 1e-9);
}

TEST(WallTimeBreakdown, HasRoomForAnyNumberOfSlots) {
  // Cells are merged while they hold work, and before the first of it.
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5000000000}}) {
    constexpr std::int64_t kSlots = 20000;
    WallTimeBreakdown wall_time;
    wall_time.enter(Entry::kWork);
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      work(1e-6);
      wall_time.slots_done(first + slot + 1);
    }
    const double all = wall_time.seconds(Entry::kWork);
    // Slots share cells here: each has an equal share of its cell.
    wall_time.back_to(first + kSlots / 4);
    EXPECT_GT(wall_time.seconds(Entry::kWork), 0);
    EXPECT_GT(wall_time.seconds(Entry::kRepeat), 0.5 * all) << "three quarters were lost";
    EXPECT_NEAR(wall_time.seconds(Entry::kWork) + wall_time.seconds(Entry::kRepeat), all, 0.001);
    wall_time.back_to(0);
    EXPECT_NEAR(wall_time.seconds(Entry::kWork), 0, 1e-9) << "from slot " << first;
  }
}

}  // namespace
}  // namespace tenon::train
