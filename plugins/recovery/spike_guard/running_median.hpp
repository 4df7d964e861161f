// The median of the newest numbers: a typical value that a spike does not move.
#pragma once

#include <tenon/state.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tenon::recovery_spike_guard {

class RunningMedian {
 public:
  /// `window`: number of values that count, at least 1.
  explicit RunningMedian(std::int64_t window) : values_(static_cast<std::size_t>(window), 0.0) {}

  void add(double value) {
    values_[static_cast<std::size_t>(added_ % static_cast<std::int64_t>(values_.size()))] = value;
    ++added_;
  }
  std::int64_t window() const { return static_cast<std::int64_t>(values_.size()); }
  std::int64_t count() const { return std::min(added_, static_cast<std::int64_t>(values_.size())); }
  /// Returns the lower one of two middle values; 0 when empty.
  double median() const {
    if (added_ == 0) return 0;
    std::vector<double> sorted(values_.begin(), values_.begin() + count());
    const auto middle = sorted.begin() + (count() - 1) / 2;
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

  void state(StateVisitor& visitor, const char* name) {
    visitor.enter(name);
    visitor.integer("added", added_);
    TensorView view;
    view.data = values_.data();
    view.dtype = DType::kF64;
    view.shape = Shape{static_cast<std::int64_t>(values_.size())};
    visitor.tensor("values", view);
    visitor.leave();
  }

 private:
  std::vector<double> values_;  ///< a ring buffer
  std::int64_t added_ = 0;
};

}  // namespace tenon::recovery_spike_guard
