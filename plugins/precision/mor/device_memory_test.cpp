// Sites and the quantizer of `mor` on a device whose memory the host cannot access: the same decisions as on
// the CPU, counted in the device's memory, and reports in host memory.
#include "device/device_test.hpp"

#include <tenon/numerics.hpp>
#include <tenon/precision.hpp>
#include <tenon/sdk/quantizer.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace tenon::testing {
namespace {

constexpr std::int64_t kM = 40, kN = 48, kK = 64;

using Values = std::vector<double>;

/// One site of one policy on one device, with all tensors that it reads and writes there.
class SiteOnDevice final : public SiteHost, public OperandCounter, public NumericsSink {
 public:
  SiteOnDevice(const std::string& type, const char* options)
      : bench(type, "auto", 1), precision(bench.make_component<Precision>("mor", options)) {
    SiteInfo info;
    info.layer = "h.0.fc";
    info.module = "linear";
    info.block_count = info.layer_count = 1;
    info.m = info.chunk = kM, info.n = kN, info.k = kK;
    info.activation = DType::kBF16;
    site = precision->bind(info, *this);
    const SiteMemory need = site->memory();
    call.persistent = make(DType::kU8, {static_cast<std::int64_t>(need.persistent)});
    call.scratch = make(DType::kU8, {static_cast<std::int64_t>(need.scratch)});
    call.numerics = this;
    x = filled(DType::kBF16, {kM, kK}, "x");
    dy = filled(DType::kBF16, {kM, kN}, "dy");
    w = filled(DType::kF32, {kN, kK}, "w");
    y = make(DType::kBF16, {kM, kN});
    dx = make(DType::kBF16, {kM, kK});
    dw = make(DType::kF32, {kN, kK});
  }
  ~SiteOnDevice() override {
    site.reset();
    for (const TensorView& view : memory) bench.device->release(view.data, view.bytes());
  }

  Device& device() override { return *bench.device; }
  OperandCounter& operands() override { return *this; }
  RandomKey rounding_key() override { return {}; }
  TensorView state(std::string_view name, DType dtype, const Shape& shape) override {
    return states.try_emplace(std::string(name), make(dtype, shape)).first->second;
  }
  void count(std::string_view format, std::int64_t operands) override {
    counts[std::string(format)] += operands;
  }
  void add(const OperandNumerics& operand) override {
    for (const TensorView& view : {operand.input, operand.choices}) EXPECT_EQ(view.space, MemorySpace::kHost);
    reasons.emplace_back(operand.reason);
    sums.push_back(operand.stats.signal + operand.stats.noise);
    for (std::int64_t i = 0; i < operand.choices.elements(); ++i)
      choices.push_back(operand.choices.as<std::uint8_t>()[i]);
  }

  void step() {
    site->fprop(call, x, w, {}, y);
    site->dgrad(call, dy, w, dx, false);
    site->wgrad(call, x, dy, dw, false);
  }
  std::map<std::string, double> metrics() {
    std::map<std::string, double> found;
    static_cast<PrecisionMetrics*>(precision->query(PrecisionMetrics::kId))
        ->metrics([&](std::string_view name, double value) { found.emplace(name, value); });
    return found;
  }
  TensorView make(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, bench.device->space()};
    view.data = bench.device->allocate(view.bytes());
    memory.push_back(view);
    return view;
  }
  TensorView filled(DType dtype, const Shape& shape, const char* purpose) {
    const TensorView view = make(dtype, shape);
    write(*bench.device, view, normals(view.elements(), purpose));
    return view;
  }

  Bench bench;
  Made<Precision> precision;
  std::vector<TensorView> memory;
  std::map<std::string, TensorView> states;
  std::map<std::string, std::int64_t> counts;
  std::vector<std::string> reasons;
  Values sums, choices;
  std::unique_ptr<LinearSite> site;
  SiteCall call;
  TensorView x, dy, w, y, dx, dw;
};

TEST(MorDeviceMemory, SitesDecideAsOnTheCpuAndCountInTheirOwnMemory) {
  for (const char* options :
       {"", "level = 'sub2'\npartition = '16x32'", "level = 'sub3'\npartition = '16x16'\ne2m3 = true",
        "fp4 = true\nfp4_threshold = 0.2", "threshold = 0.001"}) {
    SiteOnDevice cpu("cpu", options), device(tested_device(), options);
    for (SiteOnDevice* own : {&cpu, &device}) {
      own->step();
      own->step();
    }
    EXPECT_EQ(device.counts, cpu.counts) << options;
    EXPECT_EQ(device.reasons, cpu.reasons) << options;
    EXPECT_EQ(device.choices, cpu.choices) << options;
    EXPECT_EQ(device.sums, cpu.sums) << options;
    EXPECT_EQ(device.metrics(), cpu.metrics()) << options;
    for (const auto& [name, state] : cpu.states)
      EXPECT_EQ(read(*device.bench.device, device.states.at(name)), read(*cpu.bench.device, state)) << name;
    // Operands are equal; sums of 64 products in f32 run in another order, and results are rounded to bf16.
    for (const auto result : {&SiteOnDevice::y, &SiteOnDevice::dx, &SiteOnDevice::dw}) {
      const Values found = read(*device.bench.device, device.*result),
                   expected = read(*cpu.bench.device, cpu.*result);
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 0x1p-2) << options;
    }
  }
}

TEST(MorDeviceMemory, TheQuantizerShowsTheSame) {
  const auto run = [](const std::string& type) {
    SiteOnDevice on(type, "");
    Device& device = *on.bench.device;
    auto& quantizer = *static_cast<Quantizer*>(on.precision->query(Quantizer::kId));
    QuantizeRequest request;
    request.block_rows = request.block_columns = 16;
    request.rows = 40, request.columns = 52;
    const TensorView x = on.filled(DType::kF32, {40, 52}, "matrix"), codes = on.make(DType::kU8, {40, 52}),
                     scales = on.make(DType::kF32, {3, 4}), values = on.make(DType::kF32, {40, 52});
    const QuantizeReport report = quantizer.run(request, device, x, codes, scales, values);
    return std::tuple{read(device, codes), read(device, scales), read(device, values), report.decision,
                      report.sqnr_db};
  };
  EXPECT_EQ(run(tested_device()), run("cpu"));
}

}  // namespace
}  // namespace tenon::testing
