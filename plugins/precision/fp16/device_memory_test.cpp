// Sites of `fp16` on a device whose memory the host cannot access: the same operands as on the CPU, and
// reports in host memory.
#include "device/device_test.hpp"

#include <tenon/numerics.hpp>
#include <tenon/precision.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenon::testing {
namespace {

constexpr std::int64_t kM = 19, kN = 24, kK = 40;

/// One site on one device, with all tensors that it reads and writes there.
class SiteOnDevice final : public SiteHost, public OperandCounter, public NumericsSink {
 public:
  explicit SiteOnDevice(const std::string& type)
      : bench(type, "auto", 1), precision(bench.make_component<Precision>("fp16", "")) {
    SiteInfo info;
    info.layer = "fc";
    info.layer_count = 1;
    info.m = info.chunk = kM, info.n = kN, info.k = kK;
    site = precision->bind(info, *this);
    const SiteMemory need = site->memory();
    call.persistent = make(DType::kU8, {static_cast<std::int64_t>(need.persistent)});
    call.scratch = make(DType::kU8, {static_cast<std::int64_t>(need.scratch)});
    call.numerics = this;
  }
  ~SiteOnDevice() override {
    for (const TensorView& view : memory) bench.device->release(view.data, view.bytes());
  }
  Device& device() override { return *bench.device; }
  OperandCounter& operands() override { return *this; }
  RandomKey rounding_key() override { return {}; }
  TensorView state(std::string_view, DType, const Shape&) override { return {}; }
  void count(std::string_view, std::int64_t) override {}
  void add(const OperandNumerics& operand) override {
    EXPECT_EQ(operand.input.space, MemorySpace::kHost);
    seen.insert(seen.end(), {operand.stats.signal, operand.stats.noise, operand.stats.underflow});
    for (std::int64_t i = 0; i < operand.input.elements(); ++i)
      seen.push_back(static_cast<double>(operand.input.as<float>()[i]));
  }

  TensorView make(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, bench.device->space()};
    view.data = bench.device->allocate(view.bytes());
    memory.push_back(view);
    return view;
  }
  TensorView filled(const Shape& shape, const char* purpose) {
    const TensorView view = make(DType::kF32, shape);
    write(*bench.device, view, normals(view.elements(), purpose));
    return view;
  }
  std::vector<std::vector<double>> step() {
    const TensorView x = filled({kM, kK}, "x"), dy = filled({kM, kN}, "dy"), w = filled({kN, kK}, "w");
    const TensorView y = make(DType::kF32, {kM, kN}), dx = make(DType::kF32, {kM, kK}),
                     dw = make(DType::kF32, {kN, kK});
    site->fprop(call, x, w, {}, y);
    site->dgrad(call, dy, w, dx, false);
    site->wgrad(call, x, dy, dw, false);
    return {read(*bench.device, y), read(*bench.device, dx), read(*bench.device, dw)};
  }

  Bench bench;
  Made<Precision> precision;
  std::vector<TensorView> memory;
  std::vector<double> seen;
  std::unique_ptr<LinearSite> site;
  SiteCall call;
};

TEST(Fp16DeviceMemory, SitesRoundAsOnTheCpu) {
  SiteOnDevice cpu("cpu"), device(tested_device());
  const auto expected = cpu.step(), found = device.step();
  // Operands are equal; sums in f32 run in another order, and results are rounded to 11 bits.
  for (std::size_t r = 0; r < found.size(); ++r) {
    ASSERT_EQ(found[r].size(), expected[r].size());
    for (std::size_t i = 0; i < found[r].size(); ++i) EXPECT_NEAR(found[r][i], expected[r][i], 0x1p-5);
  }
  EXPECT_EQ(device.seen, cpu.seen);
}

}  // namespace
}  // namespace tenon::testing
