// Checks of contract schedule/1: a pure function of the slot that a run can always follow.
#include "subject.hpp"

#include <tenon/optimizer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tenon::conformance {
namespace {

/// Every slot of short runs, some of long ones, and slots after the end, which prolonged runs reach.
std::vector<SchedulePoint> points() {
  std::vector<SchedulePoint> all;
  for (const std::int64_t steps : {1, 2, 3, 10, 1000, 1000000}) {
    const std::int64_t stride = std::max<std::int64_t>(1, steps / 50);
    for (std::int64_t slot = 0; slot < 2 * steps + 2; slot += stride)
      all.push_back({.slot = slot, .steps = steps, .base_lr = 0.1});
    all.push_back({.slot = steps - 1, .steps = steps, .base_lr = 0.1});
    all.push_back({.slot = steps, .steps = steps, .base_lr = 0.1});
  }
  return all;
}

std::string text(const SchedulePoint& point) {
  return fmt::format("slot {} of a run of {} slots, base_lr {}", point.slot, point.steps, point.base_lr);
}

void is_pure(Subject& subject) {
  const testing::Made<Schedule> first = subject.make<Schedule>(), second = subject.make<Schedule>();
  const std::vector<SchedulePoint> all = points();
  std::vector<double> rates;
  for (const SchedulePoint& point : all) rates.push_back(first->rate(point));
  for (std::size_t i = all.size(); i-- > 0;) {
    for (const Schedule* schedule : {&*first, &*second}) {
      const double again = schedule->rate(all[i]);
      if (again != rates[i] && !(std::isnan(again) && std::isnan(rates[i]))) {
        fail(
            fmt::format("{}: the rate was {} and is {} when asked again, in reverse order or of another "
                        "object; it may depend on the point alone",
                        text(all[i]), rates[i], again));
      }
    }
  }
}

void is_finite(Subject& subject) {
  const testing::Made<Schedule> schedule = subject.make<Schedule>();
  for (const SchedulePoint& point : points()) {
    if (const double rate = schedule->rate(point); !std::isfinite(rate))
      fail(fmt::format("{}: the rate is {}", text(point), rate));
  }
}

void is_never_negative(Subject& subject) {
  const testing::Made<Schedule> schedule = subject.make<Schedule>();
  for (const SchedulePoint& point : points()) {
    if (const double rate = schedule->rate(point); rate < 0)
      fail(fmt::format("{}: the rate is {}, which would climb", text(point), rate));
  }
}

void trains_at_all(Subject& subject) {
  const testing::Made<Schedule> schedule = subject.make<Schedule>();
  for (const std::int64_t steps : {std::int64_t{1000}, std::int64_t{1000000}}) {
    double highest = 0;
    for (std::int64_t slot = 0; slot < steps; slot += steps / 1000)
      highest = std::max(highest, schedule->rate({.slot = slot, .steps = steps, .base_lr = 0.1}));
    if (!(highest > 0)) fail(fmt::format("no slot of a run of {} slots has a rate above 0", steps));
  }
}

constexpr const char* kScheduleKind = Schedule::kKind;
constexpr Check kScheduleChecks[] = {
    {"schedule.is_pure", kScheduleKind, "the rate is a function of the point, in any order and of any object",
     is_pure},
    {"schedule.is_finite", kScheduleKind, "the rate is a number in runs of any length, also after their end",
     is_finite},
    {"schedule.is_never_negative", kScheduleKind, "the rate is never below 0", is_never_negative},
    {"schedule.trains_at_all", kScheduleKind, "some slot has a rate above 0", trains_at_all},
};

}  // namespace

std::span<const Check> schedule_checks() {
  return kScheduleChecks;
}

}  // namespace tenon::conformance
