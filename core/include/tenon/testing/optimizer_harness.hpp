// For tests of optimizers: one tensor of weights with gradients and state, stepped by hand.
#pragma once

#include <tenon/optimizer.hpp>
#include <tenon/testing/tensors.hpp>

#include <span>
#include <vector>

namespace tenon::testing {

class OptimizerHarness {
 public:
  /// dtype: f32 or f64.
  OptimizerHarness(Device& device, Optimizer& optimizer, DType dtype, std::span<const double> start)
      : device_(device), optimizer_(optimizer) {
    const std::size_t tensors = 2 + optimizer.slots().size();
    for (std::size_t i = 0; i < tensors; ++i) {
      TensorView view{nullptr, {static_cast<std::int64_t>(start.size())}, dtype, device.space()};
      view.data = device.allocate(static_cast<std::size_t>(view.bytes()));
      tensors_.push_back(view);
    }
    write(device, tensors_[0], start);
  }
  ~OptimizerHarness() {
    for (const TensorView& view : tensors_)
      device_.release(view.data, static_cast<std::size_t>(view.bytes()));
  }
  OptimizerHarness(const OptimizerHarness&) = delete;
  OptimizerHarness& operator=(const OptimizerHarness&) = delete;

  /// One update with these gradients; lr and count are the caller's.
  void step(std::span<const double> gradients, double lr, std::int64_t count, double gradient_scale,
            bool decay) {
    write(device_, tensors_[1], gradients);
    optimizer_.step({.lr = lr, .count = count, .gradient_scale = gradient_scale, .device = &device_},
                    {.weights = tensors_[0],
                     .gradients = tensors_[1],
                     .state = std::span<const TensorView>(tensors_).subspan(2),
                     .decay = decay});
  }
  std::vector<double> weights() { return read(device_, tensors_[0]); }
  std::vector<double> state(std::size_t slot) { return read(device_, tensors_[2 + slot]); }

 private:
  Device& device_;
  Optimizer& optimizer_;
  std::vector<TensorView> tensors_;  // weights, gradients, one per slot
};

}  // namespace tenon::testing
