// Schedules that are wrong in one way each.
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>

namespace {

using namespace tenon;

class Base : public Schedule {
 public:
  explicit Base(const Options&) {}
};

class LooksBack final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "looks_back", .summary = "the last rate, a little lower"};
  using Base::Base;
  double rate(const SchedulePoint& point) const override {
    return last_ = last_ == 0 ? point.base_lr : 0.99 * last_;
  }

 private:
  mutable double last_ = 0;
};

class DividesByTheRest final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "divides_by_the_rest", .summary = "infinite at the end"};
  using Base::Base;
  double rate(const SchedulePoint& point) const override {
    return point.base_lr / static_cast<double>(point.steps - point.slot);
  }
};

class FallsFurther final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "falls_further", .summary = "below zero after the end"};
  using Base::Base;
  double rate(const SchedulePoint& point) const override {
    return point.base_lr * (1 - static_cast<double>(point.slot) / static_cast<double>(point.steps));
  }
};

class WholeNumbers final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "whole_numbers", .summary = "divides integers"};
  using Base::Base;
  double rate(const SchedulePoint& point) const override {
    return point.slot >= point.steps ? 0.0 : point.base_lr * static_cast<double>(point.slot / point.steps);
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.schedule", .version = "1.0.0", .summary = "wrong schedules"}, LooksBack,
             DividesByTheRest, FallsFurther, WholeNumbers)
