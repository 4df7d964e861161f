// Sites and quantizers on a device whose memory the host cannot access: the same bits as on the CPU, states
// in the device's memory, and reports in host memory.
#include "device/device_test.hpp"
#include "testing.hpp"

#include <tenon/numerics.hpp>
#include <tenon/sdk/quantizer.hpp>

#include <gtest/gtest.h>

namespace tenon::quantized {
namespace {

using tenon::testing::read;
using testing::Bench;
using testing::Buffers;
using testing::distance;
using testing::Rig;
using testing::site_info;
using testing::Values;

class DeviceMemoryTest : public ::testing::Test {
 protected:
  Bench cpu{"cpu", "reference", 1};
  tenon::testing::TestedDevice device;
};

TEST_F(DeviceMemoryTest, QuantizersGiveTheBitsOfTheCpu) {
  const struct {
    const char *component, *format;
    const char* options = "";
    const char *rounding = "", *transform = "";
    std::int64_t block_rows = 0, block_columns = 0;
  } cases[] = {{"nvfp4", "nvfp4"},  {"nvfp4", "nvfp4", "", "sr", "rht16", 16, 1},
               {"mxfp4", "mxfp4"},  {"mxfp8", "mxfp6_e3m2"},
               {"fp8", "fp8_e4m3"}, {"fp8", "fp8_block", "recipe = \"block\"\nscales = \"fp32\""}};
  const auto numbers = tenon::testing::normals(20 * 80, "x");
  for (const auto& c : cases) {
    QuantizeRequest request;
    request.format = c.format;
    request.rounding = c.rounding, request.transform = c.transform;
    request.block_rows = c.block_rows, request.block_columns = c.block_columns;
    request.rows = 20, request.columns = 80;
    const auto run = [&](Bench& bench) {
      const auto precision = bench.make_component<Precision>(c.component, c.options);
      auto* const quantizer = static_cast<Quantizer*>(precision->query(Quantizer::kId));
      const QuantizeShape shape = quantizer->shape(request);
      Buffers buffers(*bench.device);
      const TensorView x = buffers.of(DType::kF32, {20, 80}, numbers);
      const TensorView codes = buffers.make(DType::kU8, {shape.rows, shape.columns});
      const TensorView scales = shape.scale_rows == 0
                                    ? TensorView{}
                                    : buffers.make(shape.scale, {shape.scale_rows, shape.scale_columns});
      const TensorView values = buffers.make(DType::kF32, {shape.rows, shape.columns});
      const QuantizeReport report = quantizer->run(request, *bench.device, x, codes, scales, values);
      return std::tuple{read(*bench.device, codes),
                        read(*bench.device, scales),
                        read(*bench.device, values),
                        report.tensor_scale,
                        report.amax,
                        report.underflow_fraction};
    };
    EXPECT_EQ(run(device), run(cpu)) << c.format << " " << c.transform;
  }
}

/// Stores the content of reports, and reads the tensors that they show.
class Sink final : public NumericsSink {
 public:
  void add(const OperandNumerics& operand) override {
    EXPECT_EQ(operand.input.space, MemorySpace::kHost);
    EXPECT_EQ(operand.scales.space, MemorySpace::kHost);
    Values seen;
    for (const TensorView& view : {operand.input, operand.scales}) {
      const auto bytes = view.empty() ? 0 : static_cast<std::size_t>(view.bytes());
      for (std::size_t i = 0; i < bytes; ++i) seen.push_back(view.as<std::uint8_t>()[i]);
    }
    tensors.push_back(seen);
    noise.push_back(operand.stats.noise);
  }
  std::vector<Values> tensors;
  Values noise;
};

TEST_F(DeviceMemoryTest, SitesRoundAsOnTheCpuAndRememberInTheirOwnMemory) {
  const std::pair<const char*, const char*> cases[] = {{"nvfp4", ""},
                                                       {"mxfp8", ""},
                                                       {"fp8", "recipe = \"delayed\""},
                                                       {"fp8", "recipe = \"block\"\nscales = \"fp32\""}};
  for (const auto& [component, options] : cases) {
    const auto of_cpu = cpu.make_component<Precision>(component, options);
    const auto of_device = device.make_component<Precision>(component, options);
    const SiteInfo info = site_info(48, 64, 80);
    Rig expected(*cpu.device, *of_cpu, info), found(*device.device, *of_device, info);
    Sink expected_sink, found_sink;
    for (std::int64_t slot = 0; slot < 3; ++slot) {
      // A larger value in one slot changes the scales of the next.
      for (Rig* rig : {&expected, &found}) {
        Values x = tenon::testing::normals(rig->x.elements(), "x");
        for (double& value : x) value *= slot == 1 ? 4 : 1;
        rig->set(rig->x, x);
      }
      expected.call.numerics = slot == 2 ? &expected_sink : nullptr;
      found.call.numerics = slot == 2 ? &found_sink : nullptr;
      const auto of_host = expected.step(slot), own = found.step(slot);
      // Operands are equal; sums of 80 products in f32 run in another order, and results are rounded to bf16.
      for (std::size_t i = 0; i < own.size(); ++i)
        EXPECT_LT(distance(own[i], of_host[i]), 0x1p-8) << component << " " << options << " result " << i;
    }
    EXPECT_EQ(found.host.counts, expected.host.counts);
    EXPECT_EQ(found_sink.tensors, expected_sink.tensors) << component << " " << options;
    ASSERT_EQ(found_sink.noise.size(), expected_sink.noise.size());
    for (std::size_t i = 0; i < found_sink.noise.size(); ++i)
      EXPECT_NEAR(found_sink.noise[i], expected_sink.noise[i], expected_sink.noise[i] * 0x1p-40);
    ASSERT_EQ(found.host.states.size(), expected.host.states.size());
    for (const auto& [name, state] : expected.host.states)
      EXPECT_EQ(read(*device.device, found.host.states.at(name)), read(*cpu.device, state)) << name;
  }
}

}  // namespace
}  // namespace tenon::quantized
