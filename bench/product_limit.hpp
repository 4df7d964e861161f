// Speed of the device's products and copies alone: a bound for steps with products of these shapes. Operands
// are zero-filled and stay where the device placed them.
#pragma once

#include "step_bench.hpp"

#include <tenon/device.hpp>
#include <tenon/ops/dense.hpp>

#include <chrono>

namespace tenon::bench {

/// `passes` products of an [m, k] and a [k, n] matrix: 3 for a layer's forward and both of its gradients.
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  int passes = 3;

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// Memory of the device, released at the end.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, const Shape& shape, DType dtype)
      : device_(device), view_{nullptr, shape, dtype, device.space()} {
    if (view_.bytes() > 0) view_.data = device.allocate(view_.bytes());
  }
  ~DeviceMemory() {
    if (view_.data != nullptr) device_.release(view_.data, view_.bytes());
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  const TensorView& view() const { return view_; }

 private:
  Device& device_;
  TensorView view_;
};

/// Mean of calls that take `least` seconds together, after one that warms up.
template <typename Call>
double seconds_of_calls(double least, Call call) {
  call();
  const auto begin = std::chrono::steady_clock::now();
  for (int calls = 1;; ++calls) {
    call();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (seconds >= least) return seconds / calls;
  }
}

/// Seconds of one product through the device.
inline double product_seconds(const ProductShape& products, DType dtype, Device& device, double least = 0.1) {
  GemmSpec spec;
  spec.m = products.m, spec.n = products.n, spec.k = products.k;
  spec.transpose_b = true;
  spec.a = spec.b = spec.c = dtype;
  const auto gemm = device.family<Blas>().gemm(spec);
  const DeviceMemory a(device, {spec.m, spec.k}, dtype), b(device, {spec.n, spec.k}, dtype),
      c(device, {spec.m, spec.n}, dtype),
      scratch(device, {static_cast<std::int64_t>(gemm->scratch_bytes())}, DType::kU8);
  return seconds_of_calls(least, [&] { gemm->run(a.view(), b.view(), c.view(), {}, 1.0f, scratch.view()); });
}

/// Seconds per byte of a copy too large for the caches.
inline double copy_seconds_per_byte(Device& device) {
  const Shape shape{std::int64_t{64} << 20};
  const DeviceMemory from(device, shape, DType::kU8), to(device, shape, DType::kU8);
  return seconds_of_calls(0.1, [&] { device.copy(from.view(), to.view()); }) /
         static_cast<double>(from.view().bytes());
}

}  // namespace tenon::bench
