// Shared by the tests of operator families: the device under test, under every kernel choice, tensors that
// own their memory, and comparisons. Expected values come from loops in double that are written out in the
// tests, on inputs rounded to the tested dtype. The environment names the device, so one program serves all.
#pragma once

#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::testing {

/// Counts heap allocations by Tenon's own objects while a call runs (count_allocations.cpp). Those of oneDNN
/// and OpenMP are not counted.
int own_allocations(const std::function<void()>& call);

/// TENON_TEST_DEVICE, and its options as TOML in TENON_TEST_DEVICE_OPTIONS.
inline std::string from_environment(const char* variable, const char* otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : text;
}
inline std::string tested_device() {
  return from_environment("TENON_TEST_DEVICE", "cpu");
}
/// The start of the device's messages.
inline std::string device_says(const std::string& rest) {
  return "device " + tested_device() + ": " + rest;
}

class TestedDevice : public Bench {
 public:
  explicit TestedDevice(std::string_view kernels = "auto", int threads = 1)
      : Bench(tested_device(), kernels, threads, from_environment("TENON_TEST_DEVICE_OPTIONS", "")) {}
};

/// The message of the Error that the call throws; "" = it throws none.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Runs a call, which may not allocate host memory if operators run on the host; launches on another device
/// are exempt.
inline void expect_no_allocations(Device& device, const std::function<void()>& call) {
  const int taken = own_allocations(call);
  if (device.space() == MemorySpace::kHost) {
    EXPECT_EQ(taken, 0);
  }
}

/// Half a unit in the last place, relative: the largest error of one rounding to `dtype`.
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
/// By how much units that multiply codes may miss a sum of k products, relative to the largest of the
/// products and partial sums. Those of Hopper GPUs add 32 products and the sum so far in fixed point, 13 bits
/// below the largest (arXiv 2412.19437, 3.3.2), and truncate each: 33 times 2^-13 in each step at most.
/// Others of NVIDIA's are not documented and pass as the same.
inline double unit_error(std::int64_t k) {
  return tested_device() == "cuda" ? static_cast<double>((k + 31) / 32) * 33 * 0x1p-13 : 0;
}
inline DType arithmetic(DType activation) {
  return activation == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// A tensor on the device that frees itself, filled from doubles; NaN without them. It is between guard
/// bands: a call that writes outside of it fails the test.
class Owned {
 public:
  Owned(Device& device, Shape shape, DType dtype)
      : device_(&device), view_{nullptr, shape, dtype, device.space()} {
    memory_ = static_cast<std::byte*>(device.allocate(bytes_taken()));
    view_.data = memory_ + kBand;
    std::vector<std::byte> all(bytes_taken(), kFill);
    copy(all, memory_, true);
  }
  Owned(Device& device, Shape shape, DType dtype, const std::vector<double>& values)
      : Owned(device, shape, dtype) {
    write(device, view_, values);
  }
  ~Owned() {
    std::vector<std::byte> found(kBand);
    for (std::byte* band : {memory_, memory_ + kBand + view_.bytes()}) {
      copy(found, band, false);
      const auto first = std::find_if(found.begin(), found.end(), [](std::byte b) { return b != kFill; });
      if (first == found.end()) continue;
      ADD_FAILURE() << "a call wrote " << (band == memory_ ? "before" : "past") << " a tensor of "
                    << dtype_name(view_.dtype) << " " << view_.shape.text() << ", first at byte "
                    << first - found.begin() << " of the " << kBand << " there";
    }
    device_->release(memory_, bytes_taken());
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  operator TensorView() const {
    return view_;
  }  // NOLINT(google-explicit-constructor): a tensor where a view is asked for
  std::vector<double> values() const { return read(*device_, view_); }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> bytes(view_.bytes());
    if (!bytes.empty()) device_->copy(view_, {bytes.data(), view_.shape, view_.dtype, MemorySpace::kHost});
    return bytes;
  }
  template <typename T>
  std::vector<T> elements() const {
    const std::vector<std::byte> all = bytes();
    std::vector<T> result(all.size() / sizeof(T));
    if (!all.empty()) std::memcpy(result.data(), all.data(), all.size());
    return result;
  }
  void fill(const std::vector<double>& values) { write(*device_, view_, values); }
  /// The bits of `elements`, regardless of the dtype.
  template <typename T>
  void put(const std::vector<T>& elements) {
    if (elements.empty()) return;
    if (elements.size() * sizeof(T) != static_cast<std::size_t>(view_.bytes()))
      fail_run("test data: the elements are not as many as the tensor's");
    device_->copy({const_cast<T*>(elements.data()), view_.shape, view_.dtype, MemorySpace::kHost}, view_);
  }

 private:
  static constexpr std::size_t kBand = 4096;
  static constexpr std::byte kFill{0xFF};  // NaN in every floating-point format

  std::size_t bytes_taken() const { return static_cast<std::size_t>(view_.bytes()) + 2 * kBand; }
  void copy(std::vector<std::byte>& host, std::byte* memory, bool to_device) const {
    const Shape shape{static_cast<std::int64_t>(host.size())};
    const TensorView here{host.data(), shape, DType::kU8, MemorySpace::kHost},
        there{memory, shape, DType::kU8, device_->space()};
    device_->copy(to_device ? here : there, to_device ? there : here);
  }

  Device* device_;
  TensorView view_;
  std::byte* memory_ = nullptr;
};

/// `values` after one rounding to `dtype`.
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

/// Kernel choices that the device offers, queried from the device: "auto", and all others that work without
/// oneDNN.
inline std::vector<std::string> offered_choices() {
  std::string message, best;
  try {
    best = TestedDevice().device->kernel_choice();
    TestedDevice("no such kernels");
  } catch (const Error& error) {
    message = error.what();
  }
  std::vector<std::string> names{"auto"};
  // Any other failure shows up in the tests themselves.
  if (message.rfind(device_says("kernels"), 0) != 0) return names;
  for (std::size_t at = message.find("offer"); (at = message.find('\'', at)) != std::string::npos;) {
    const std::size_t end = message.find('\'', at + 1);
    const std::string name = message.substr(at + 1, end - at - 1);
    if (name != "auto" && name != best && name.find("onednn") == std::string::npos) names.push_back(name);
    at = end + 1;
  }
  return names;
}

/// Runs every test under each kernel choice.
class OnEveryChoice : public ::testing::TestWithParam<std::string> {
 protected:
  OnEveryChoice() : bench_(GetParam()), device_(*bench_.device) {}
  ~OnEveryChoice() override { set_parallel_threads(1); }

  bool uses_onednn() const { return device_.kernel_choice().find("onednn") != std::string_view::npos; }

  TestedDevice bench_;
  Device& device_;
};

inline std::string choice_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace tenon::testing
