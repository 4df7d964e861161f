// For the tests of this folder: a site of some precision with memory of exactly the size that it requested, a
// host that keeps its state and counts, and exact products for comparison.
#pragma once

#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <tenon/precision.hpp>

#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tenon::quantized::testing {

using tenon::testing::Bench;
using tenon::testing::Made;

using Values = std::vector<double>;

/// Memory of a device, released with the object.
class Buffers {
 public:
  explicit Buffers(Device& device) : device_(device) {}
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (const TensorView& view : views_) device_.release(view.data, view.bytes());
  }
  TensorView make(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, device_.space()};
    if (view.bytes() == 0) return view;
    view.data = device_.allocate(view.bytes());
    views_.push_back(view);
    return view;
  }
  TensorView bytes(std::size_t count) { return make(DType::kU8, Shape{static_cast<std::int64_t>(count)}); }
  TensorView of(DType dtype, const Shape& shape, const Values& values) {
    const TensorView view = make(dtype, shape);
    tenon::testing::write(device_, view, values);
    return view;
  }

 private:
  Device& device_;
  std::vector<TensorView> views_;
};

class TestHost final : public SiteHost, public OperandCounter {
 public:
  TestHost(Device& device, std::uint64_t seed) : device_(device), buffers_(device), seed_(seed) {}
  Device& device() override { return device_; }
  OperandCounter& operands() override { return *this; }
  RandomKey rounding_key() override { return random_key(seed_, "rounding:fc:0"); }
  TensorView state(std::string_view name, DType dtype, const Shape& shape) override {
    return states.try_emplace(std::string(name), buffers_.make(dtype, shape)).first->second;
  }
  void count(std::string_view format, std::int64_t operands) override {
    counts[std::string(format)] += operands;
  }
  std::map<std::string, std::int64_t> counts;
  std::map<std::string, TensorView> states;

 private:
  Device& device_;
  Buffers buffers_;
  std::uint64_t seed_;
};

inline SiteInfo site_info(std::int64_t m, std::int64_t n, std::int64_t k) {
  SiteInfo info;
  info.layer = "h.0.mlp.c_fc";
  info.module = "linear";
  info.weight = "h.0.mlp.c_fc.weight";
  info.layer_count = info.block_count = 3;
  info.m = m, info.n = n, info.k = k, info.chunk = m;
  info.activation = DType::kBF16;
  info.parameter = DType::kF32;
  info.steps = 100;
  return info;
}

/// One site, called as the executor would.
class Rig {
 public:
  Rig(Device& device, Precision& precision, const SiteInfo& site_info, std::uint64_t seed = 1)
      : device(device), info(site_info), host(device, seed), buffers_(device) {
    site = precision.bind(info, host);
    if (site == nullptr) return;
    const SiteMemory need = site->memory();
    call.kept = buffers_.bytes(need.kept);
    call.persistent = buffers_.bytes(need.persistent);
    call.scratch = buffers_.bytes(need.scratch);
    call.weight_version = 1;
    x = buffers_.make(DType::kBF16, {info.m, info.k});
    w = buffers_.make(DType::kF32, {info.n, info.k});
    bias = info.bias ? buffers_.make(DType::kF32, {info.n}) : TensorView{};
    y = buffers_.make(info.module == "head" ? DType::kF32 : DType::kBF16, {info.m, info.n});
    dy = buffers_.make(DType::kBF16, {info.m, info.n});
    dx = buffers_.make(DType::kBF16, {info.m, info.k});
    dw = buffers_.make(DType::kF32, {info.n, info.k});
    set(x, tenon::testing::normals(x.elements(), "x"));
    set(w, tenon::testing::normals(w.elements(), "w"));
    set(dy, tenon::testing::normals(dy.elements(), "dy"));
    if (info.bias) set(bias, tenon::testing::normals(bias.elements(), "bias"));
  }

  void set(TensorView view, const Values& values) { tenon::testing::write(device, view, values); }
  Values get(TensorView view) const { return tenon::testing::read(device, view); }

  Values fprop() {
    in_chunks([&](std::int64_t begin, std::int64_t end) {
      site->fprop(call, x.rows(begin, end), w, bias, y.rows(begin, end));
    });
    return get(y);
  }
  Values dgrad(bool accumulate = false) {
    in_chunks([&](std::int64_t begin, std::int64_t end) {
      site->dgrad(call, dy.rows(begin, end), w, dx.rows(begin, end), accumulate);
    });
    return get(dx);
  }
  Values wgrad(bool accumulate = false) {
    in_chunks([&](std::int64_t begin, std::int64_t end) {
      TensorView rows = x.rows(begin, end);
      if (!site->reads_input()) rows = {};
      site->wgrad(call, rows, dy.rows(begin, end), dw, accumulate || begin > 0);
    });
    return get(dw);
  }
  /// Returns y, dx, dw of one step.
  std::vector<Values> step(std::int64_t slot) {
    call.step = slot;
    Values a = fprop(), b = dgrad(), c = wgrad();
    return {a, b, c};
  }

  Device& device;
  SiteInfo info;
  TestHost host;
  std::unique_ptr<LinearSite> site;
  SiteCall call;
  TensorView x, w, bias, y, dy, dx, dw;

 private:
  template <typename Run>
  void in_chunks(Run run) {
    for (std::int64_t begin = 0; begin < info.m; begin += info.chunk) {
      call.first_row = call.origin_row = begin;
      run(begin, std::min(begin + info.chunk, info.m));
    }
  }
  Buffers buffers_;
};

/// c[i, j] = sum over l of a(i, l) b(l, j).
template <typename A, typename B>
Values product(std::int64_t rows, std::int64_t columns, std::int64_t inner, A a, B b) {
  Values c;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < inner; ++l) sum += a(i, l) * b(l, j);
      c.push_back(sum);
    }
  }
  return c;
}

inline auto element(const Values& values, std::int64_t columns) {
  return [&values, columns](std::int64_t row, std::int64_t column) { return values[row * columns + column]; };
}
inline auto transposed(const Values& values, std::int64_t columns) {
  return [&values, columns](std::int64_t row, std::int64_t column) { return values[column * columns + row]; };
}

/// Returns |found - expected| / |expected|, Frobenius.
inline double distance(const Values& found, const Values& expected) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  const double result = std::sqrt(error / size);
  return std::isfinite(result) && found.size() == expected.size() ? result : INFINITY;
}

}  // namespace tenon::quantized::testing
