#include "loop/peak_rate.hpp"

#include <algorithm>

namespace tenon::train {
namespace {

constexpr std::int64_t kAllAsked = std::int64_t{1} << 20;
constexpr std::int64_t kPoints = std::int64_t{1} << 16;

}  // namespace

double peak_rate(const Schedule& schedule, std::int64_t steps, double base_lr) {
  double peak = 0;
  std::int64_t first = 0, last = steps - 1;
  while (last - first >= kAllAsked) {
    const std::int64_t distance = (last - first) / kPoints;
    const auto slot_of = [&](std::int64_t point) {
      return point == kPoints ? last : first + point * distance;
    };
    std::int64_t best = 0;
    double largest = schedule.rate({first, steps, base_lr});
    for (std::int64_t point = 1; point <= kPoints; ++point) {
      const double rate = schedule.rate({slot_of(point), steps, base_lr});
      if (!(rate > largest)) continue;
      largest = rate;
      best = point;
    }
    peak = std::max(peak, largest);
    const std::int64_t before = slot_of(std::max<std::int64_t>(best - 1, 0));
    last = slot_of(std::min(best + 1, kPoints));
    first = before;
  }
  for (std::int64_t slot = first; slot <= last; ++slot)
    peak = std::max(peak, schedule.rate({slot, steps, base_lr}));
  return peak;
}

}  // namespace tenon::train
