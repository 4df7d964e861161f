// For tests of optimizers: one tensor of weights with gradients and state, stepped by hand.
#pragma once

#include <tenon/optimizer.hpp>
#include <tenon/testing/tensors.hpp>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

class OptimizerHarness {
 public:
  /// dtype: f32 or f64. One flat tensor.
  OptimizerHarness(Device& device, Optimizer& optimizer, DType dtype, std::span<const double> start)
      : OptimizerHarness(device, optimizer, dtype, start, "w",
                         Shape{static_cast<std::int64_t>(start.size())}) {}
  /// A parameter of this name and shape, flat if the rule is elementwise.
  OptimizerHarness(Device& device, Optimizer& optimizer, DType dtype, std::span<const double> start,
                   std::string name, const Shape& shape)
      : OptimizerHarness(device, optimizer, start, whole(std::move(name), dtype, shape), nullptr, true) {}
  /// A shard of a parameter over `grid`; info.local is its local shape.
  OptimizerHarness(Device& device, Optimizer& optimizer, std::span<const double> start, ParameterInfo info,
                   Communicator* mesh, bool first_holder)
      : device_(device), optimizer_(optimizer), info_(std::move(info)), first_holder_(first_holder ? 1 : 0) {
    const Shape shape = optimizer.elementwise() ? Shape{info_.local.elements()} : info_.local;
    std::vector<Shape> shapes{shape, shape};
    for (const StateSlot& slot : optimizer.slots()) shapes.push_back(state_shape(slot, shape));
    for (const Shape& each : shapes) {
      TensorView view{nullptr, each, info_.spec.dtype, device.space()};
      view.data = device.allocate(view.bytes());
      tensors_.push_back(view);
    }
    write(device, tensors_[0], start);
    if (auto* binding = static_cast<OptimizerBinding*>(optimizer.query(OptimizerBinding::kId)))
      binding->bind({{&info_, 1}, {&first_holder_, 1}, mesh, &device});
  }
  ~OptimizerHarness() {
    for (const TensorView& view : tensors_) device_.release(view.data, view.bytes());
  }
  OptimizerHarness(const OptimizerHarness&) = delete;
  OptimizerHarness& operator=(const OptimizerHarness&) = delete;

  static ParameterInfo whole(std::string name, DType dtype, const Shape& shape) {
    ParameterInfo info;
    info.spec.name = std::move(name);
    info.spec.dtype = dtype;
    info.spec.shape = info.local = shape;
    info.arena = 0;
    return info;
  }

  /// One update with these gradients; lr and count are the caller's.
  void step(std::span<const double> gradients, double lr, std::int64_t count, double gradient_scale,
            bool decay) {
    write(device_, tensors_[1], gradients);
    optimizer_.step({.lr = lr, .count = count, .gradient_scale = gradient_scale, .device = &device_},
                    {.weights = tensors_[0],
                     .gradients = tensors_[1],
                     .state = std::span<const TensorView>(tensors_).subspan(2),
                     .decay = decay,
                     .parameter = 0});
  }
  std::vector<double> weights() { return read(device_, tensors_[0]); }
  std::vector<double> state(std::size_t slot) { return read(device_, tensors_[2 + slot]); }

 private:
  Device& device_;
  Optimizer& optimizer_;
  ParameterInfo info_;
  std::uint8_t first_holder_;
  std::vector<TensorView> tensors_;  // weights, gradients, one per slot
};

}  // namespace tenon::testing
