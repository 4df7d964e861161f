// What the tests of this device share: devices of every kernel choice, tensors that own their memory, and
// comparisons. Expected values come from loops in double that are written out in the tests, on inputs rounded
// to the tested dtype.
#pragma once

#include <tenon/operators_extra.hpp>
#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace tenon::testing {

/// Half a unit in the last place, relative: what one rounding to `dtype` may cost.
inline double unit(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}
inline DType arithmetic(DType activation) {
  return activation == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// A tensor on the device that frees itself, filled from doubles.
class Owned {
 public:
  Owned(Device& device, Shape shape, DType dtype)
      : device_(&device), view_{nullptr, shape, dtype, device.space()} {
    view_.data = device.allocate(static_cast<std::size_t>(view_.bytes()));
  }
  Owned(Device& device, Shape shape, DType dtype, const std::vector<double>& values)
      : Owned(device, shape, dtype) {
    write(device, view_, values);
  }
  ~Owned() { device_->release(view_.data, static_cast<std::size_t>(view_.bytes())); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  operator TensorView() const {
    return view_;
  }  // NOLINT(google-explicit-constructor): a tensor where a view is asked for
  std::vector<double> values() const { return read(*device_, view_); }
  std::vector<std::byte> bytes() const { return {view_.raw().begin(), view_.raw().end()}; }
  void fill(const std::vector<double>& values) { write(*device_, view_, values); }

 private:
  Device* device_;
  TensorView view_;
};

/// `values` as they are after one rounding to `dtype`.
inline std::vector<double> rounded(std::vector<double> values, DType dtype) {
  for (double& value : values) {
    if (dtype == DType::kF32) value = static_cast<float>(value);
    if (dtype == DType::kBF16) value = from_bf16(to_bf16(static_cast<float>(value)));
  }
  return values;
}
/// Standard normal numbers that `dtype` represents.
inline std::vector<double> numbers(std::int64_t count, std::string_view purpose, DType dtype) {
  return rounded(normals(count, purpose), dtype);
}

/// Kernel choices that this machine offers, asked of the device itself: "auto", and all that go without
/// oneDNN.
inline std::vector<std::string> offered_choices() {
  std::string message;
  try {
    Bench bench("cpu", "no such kernels", 1);
  } catch (const Error& error) {
    message = error.what();
  }
  // Any other failure shows up in the tests themselves.
  if (message.rfind("device cpu: kernels", 0) != 0) return {"auto"};
  std::vector<std::string> names;
  for (std::size_t at = message.find("offer"); (at = message.find('\'', at)) != std::string::npos;) {
    const std::size_t end = message.find('\'', at + 1);
    const std::string name = message.substr(at + 1, end - at - 1);
    if (name.find("onednn") == std::string::npos) names.push_back(name);
    at = end + 1;
  }
  return names;
}

/// Runs every test under each kernel choice.
class OnEveryChoice : public ::testing::TestWithParam<std::string> {
 protected:
  OnEveryChoice() : bench_("cpu", GetParam(), 1), device_(*bench_.device) {}
  ~OnEveryChoice() override { set_parallel_threads(1); }

  bool uses_onednn() const { return device_.kernel_choice().find("onednn") != std::string_view::npos; }

  Bench bench_;
  Device& device_;
};

inline std::string choice_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace tenon::testing
