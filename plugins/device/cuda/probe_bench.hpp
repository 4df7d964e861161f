// Device tensors and comparison for probes.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/bf16.hpp>

#include <fmt/format.h>

#include <string>
#include <vector>

namespace tenon::cuda {

/// Tensors of the device under a probe.
class ProbeBench {
 public:
  explicit ProbeBench(Device& device) : device_(device) {}
  ~ProbeBench() {
    for (const TensorView& view : views_) device_.release(view.data, static_cast<std::size_t>(view.bytes()));
  }
  ProbeBench(const ProbeBench&) = delete;
  ProbeBench& operator=(const ProbeBench&) = delete;

  Device& device() const { return device_; }
  TensorView room(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, device_.space()};
    view.data = device_.allocate(static_cast<std::size_t>(view.bytes()));
    views_.push_back(view);
    return view;
  }
  /// Whole numbers of at most 3 bits.
  TensorView drawn(DType dtype, const Shape& shape, int seed, std::vector<double>& values) {
    values.resize(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>((static_cast<int>(i) * 7 + seed) % 13 - 6);
    const TensorView view = room(dtype, shape);
    with_type(dtype, [&](auto zero) {
      std::vector<decltype(zero)> there(values.size());
      for (std::size_t i = 0; i < there.size(); ++i) put(values[i], there[i]);
      device_.copy({there.data(), shape, dtype, MemorySpace::kHost}, view);
      device_.synchronize();
    });
    return view;
  }
  template <class T>
  TensorView copied(std::vector<T>& from, DType dtype) {
    const TensorView view = room(dtype, {static_cast<std::int64_t>(from.size())});
    device_.copy({from.data(), view.shape, dtype, MemorySpace::kHost}, view);
    device_.synchronize();
    return view;
  }
  std::vector<double> values(const TensorView& view) {
    std::vector<double> result(static_cast<std::size_t>(view.elements()));
    with_type(view.dtype, [&](auto zero) {
      std::vector<decltype(zero)> there(result.size());
      device_.copy(view, {there.data(), view.shape, view.dtype, MemorySpace::kHost});
      device_.synchronize();
      for (std::size_t i = 0; i < there.size(); ++i) result[i] = get(there[i]);
    });
    return result;
  }

 private:
  template <class Visit>
  static void with_type(DType dtype, Visit visit) {
    if (dtype == DType::kF64) return visit(double{});
    if (dtype == DType::kBF16) return visit(kernels::Bf16{});
    visit(float{});
  }
  template <class T>
  static void put(double value, T& at) {
    at = static_cast<T>(value);
  }
  static void put(double value, kernels::Bf16& at) { at = kernels::to_bf16(static_cast<float>(value)); }
  template <class T>
  static double get(T value) {
    return static_cast<double>(value);
  }
  static double get(kernels::Bf16 value) { return kernels::to_float(value); }

  Device& device_;
  std::vector<TensorView> views_;
};

/// "" = equal.
inline std::string difference(const std::vector<double>& found, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return fmt::format("element {} is {}, and on the host {}", i, found[i], expected[i]);
  }
  return "";
}

inline constexpr const char* kEqual = "equal to the host's numbers";

/// Reports an error of call() as a claim that does not hold.
template <class Call>
void guarded(FactReport& report, const std::string& claim, Call call) {
  try {
    call();
  } catch (const Error& error) {
    report.probe(claim, false, error.what());
  }
}

/// attempt(bench) returns what is wrong; "" = nothing.
template <class Attempt>
void run_probe(Device& device, FactReport& report, const std::string& claim, const std::string& right,
               Attempt attempt) {
  guarded(report, claim, [&] {
    ProbeBench bench(device);
    const std::string wrong = attempt(bench);
    report.probe(claim, wrong.empty(), wrong.empty() ? right : wrong);
  });
}

}  // namespace tenon::cuda
