// Fixtures shared by the checks of devices.
#pragma once

#include "subject.hpp"

#include <tenon/device.hpp>
#include <tenon/testing/tensors.hpp>

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace tenon::conformance {

using Values = std::vector<double>;

/// The device under test, opened, and tensors on it that end with this object.
class DeviceRig {
 public:
  explicit DeviceRig(Subject& subject) : device_(subject.make<Device>()) {
    device_->open({.local_rank = 0, .threads = 1, .kernels = "auto"});
  }
  ~DeviceRig() {
    for (const TensorView& view : tensors_)
      device_->release(view.data, static_cast<std::size_t>(view.bytes()));
  }
  DeviceRig(const DeviceRig&) = delete;
  DeviceRig& operator=(const DeviceRig&) = delete;

  Device& device() { return *device_; }
  TensorView tensor(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, device_->space()};
    view.data = device_->allocate(static_cast<std::size_t>(view.bytes()));
    tensors_.push_back(view);
    return view;
  }
  /// Normal numbers, rounded to the dtype.
  TensorView drawn(DType dtype, const Shape& shape, std::string_view purpose) {
    const TensorView view = tensor(dtype, shape);
    testing::write(*device_, view, testing::normals(view.elements(), purpose));
    return view;
  }
  Values values(TensorView view) { return testing::read(*device_, view); }
  template <typename Family>
  Family& family() {
    void* const found = device_->query(Family::kId);
    if (found == nullptr) not_applicable(fmt::format("it has no family {}", Family::kId));
    return *static_cast<Family*>(found);
  }

 private:
  testing::Made<Device> device_;
  std::vector<TensorView> tensors_;
};

}  // namespace tenon::conformance
