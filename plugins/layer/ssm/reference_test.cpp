// The layer against PyTorch (tests/reference/mamba2.safetensors): outputs and all gradients, in float64 and
// float32, for chunks of every kind.
#include "testing.hpp"

#include "reference/recorded.hpp"

#include <gtest/gtest.h>

namespace tenon::testing::ssm_reference_test {
namespace {

struct RecordedMamba {
  const char* name;
  std::int64_t heads, groups, head_width, state, conv;
  std::vector<double> dt_limits = {0, 0};
  bool documents = false;
};
std::ostream& operator<<(std::ostream& out, const RecordedMamba& c) {
  return out << c.name;
}

struct Setting {
  const char *precision, *device, *kernels;
  double bound;
};
// PyTorch's own float32 loses up to 2e-5 where a group has few values (mamba2.json).
constexpr Setting kSettings[] = {{"fp64", "cpu", "reference", 1e-12},
                                 {"fp64", "cpu", "auto", 1e-12},
                                 {"fp64", "cuda_emulated", "auto", 1e-12},
                                 {"fp32", "cpu", "reference", 5e-5},
                                 {"fp32", "cpu", "auto", 5e-5},
                                 {"fp32", "cuda_emulated", "auto", 5e-5}};

const std::vector<std::pair<std::string, std::string>> kParameters = {{"in_proj", "n.in_proj.weight"},
                                                                      {"conv_weight", "n.conv1d.weight"},
                                                                      {"conv_bias", "n.conv1d.bias"},
                                                                      {"dt_bias", "n.dt_bias"},
                                                                      {"A_log", "n.A_log"},
                                                                      {"D", "n.D"},
                                                                      {"gain", "n.norm.weight"},
                                                                      {"out_proj", "n.out_proj.weight"}};

class RecordedLayers : public ::testing::TestWithParam<RecordedMamba> {};
INSTANTIATE_TEST_SUITE_P(Cases, RecordedLayers,
                         ::testing::Values(RecordedMamba{"one_group", 4, 1, 3, 5, 4},
                                           RecordedMamba{"groups", 6, 2, 4, 3, 4},
                                           RecordedMamba{"a_group_per_head", 3, 3, 2, 4, 3},
                                           RecordedMamba{"bounded_steps", 4, 2, 3, 4, 4, {0.3, 1.1}},
                                           RecordedMamba{"documents", 4, 2, 3, 5, 4, {0, 0}, true},
                                           RecordedMamba{"no_reach", 2, 1, 4, 3, 1, {0, 0}, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(RecordedLayers, N3_OutputsAndGradientsAreThoseOfPyTorchForAnyChunk) {
  const RecordedMamba& c = GetParam();
  const Recorded recorded("mamba2");
  const std::string prefix = std::string(c.name) + ".";
  const Shape x = recorded.shape(prefix + "x");
  for (const Setting& setting : kSettings) {
    Bench bench(setting.device, setting.kernels, 1);
    const auto precision = bench.make_component<Precision>(setting.precision, "");
    for (const std::int64_t chunk : {std::int64_t{1}, std::int64_t{4}, x[1], std::int64_t{64}}) {
      NodeSpec node{"n",
                    "mamba2",
                    {"x"},
                    {{"heads", c.heads},
                     {"groups", c.groups},
                     {"head_width", c.head_width},
                     {"state", c.state},
                     {"conv", c.conv},
                     {"chunk", chunk},
                     {"dt_limits", c.dt_limits}}};
      std::vector<TestField> fields = {{"x", x, DType::kF64, recorded.values(prefix + "x")},
                                       {"d_n", x, DType::kF64, recorded.values(prefix + "d_y")}};
      if (c.documents) {
        node.inputs.push_back("documents");
        fields.push_back({"documents", {x[0], x[1]}, DType::kI32, recorded.values(prefix + "documents")});
      }
      LayerHarness harness(
          {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
          {node}, {"n"}, fields);
      for (const auto& [theirs, ours] : kParameters)
        harness.set_parameter(ours, recorded.values(prefix + theirs));
      harness.forward();
      harness.backward(1.0, true);
      const auto expect = [&](const std::vector<double>& found, const std::string& name) {
        EXPECT_LT(relative_error(found, recorded.values(prefix + name)), setting.bound)
            << name << " in chunks of " << chunk << ", " << setting.precision << " " << setting.device << " "
            << setting.kernels;
      };
      expect(harness.value("n"), "y");
      expect(harness.input_gradient("x"), "d_x");
      for (const auto& [theirs, ours] : kParameters) expect(harness.gradient(ours), "d_" + theirs);
    }
  }
}

}  // namespace
}  // namespace tenon::testing::ssm_reference_test
