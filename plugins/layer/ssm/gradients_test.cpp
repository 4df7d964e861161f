// Property N5: every gradient of the layer against central differences in float64, with documents and with
// fewer groups than heads; sums over micro-batches; the same numbers in float32 and bfloat16; and what
// backward reads.
#include "testing.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tenon::testing::ssm_gradients_test {
namespace {

HarnessSpec spec_of(Bench& bench, Precision& precision) {
  return {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &precision};
}

class MambaGradients : public ::testing::TestWithParam<MambaCase> {
 protected:
  Bench bench_{"cpu", "reference", 1};
  Made<Precision> exact_ = bench_.make_component<Precision>("fp64", "");
};
INSTANTIATE_TEST_SUITE_P(Cases, MambaGradients, ::testing::ValuesIn(mamba_cases()),
                         [](const auto& info) { return info.param.name; });

// Five-point differences with step 1e-3 carry up to 2e-9 of truncation here: the norm bends most where the
// values of a group are small.
constexpr double kDifferenceBound = 1e-8;

TEST_P(MambaGradients, N5_MatchCentralDifferences) {
  LayerHarness harness(spec_of(bench_, *exact_), GetParam().nodes(), {"n"}, GetParam().fields());
  spread_parameters(harness);
  std::string where;
  EXPECT_LT(harness.finite_difference_error(where), kDifferenceBound) << "worst: " << where;
  for (const auto& [name, gradient] : harness.all_gradients()) {
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    EXPECT_GT(largest, 1e-4) << name << " says nothing";
  }
}

// The pull-back reads x as well, and so writes its gradient first.
TEST_P(MambaGradients, N5_AreAddedToThoseOfOtherReaders) {
  LayerHarness harness(spec_of(bench_, *exact_), GetParam().nodes(), {"n", "x"}, GetParam().fields());
  spread_parameters(harness);
  std::string where;
  EXPECT_LT(harness.finite_difference_error(where), kDifferenceBound) << "worst: " << where;
}

TEST_P(MambaGradients, N5_SumOverMicroBatches) {
  LayerHarness harness(spec_of(bench_, *exact_), GetParam().nodes(), {"n"}, GetParam().fields());
  spread_parameters(harness);
  std::map<std::string, std::vector<double>> parts[2];
  const std::vector<double> x = harness.field("x");
  const std::vector<double> reversed(x.rbegin(), x.rend());
  for (const bool first : {true, false}) {
    harness.set_field("x", first ? x : reversed);
    harness.forward();
    harness.backward(0.5, true);
    parts[first] = harness.all_gradients();
  }
  for (const bool first : {true, false}) {
    harness.set_field("x", first ? x : reversed);
    harness.forward();
    harness.backward(0.5, first);
  }
  for (const ParameterInfo& info : harness.executor().parameters()) {
    std::vector<double> expected = parts[0].at(info.spec.name);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += parts[1].at(info.spec.name)[i];
    EXPECT_LT(relative_error(harness.gradient(info.spec.name), expected), 1e-13) << info.spec.name;
  }
}

// All planned memory is reused and holds NaN until it is written.
TEST_P(MambaGradients, NeedOnlyWhatTheLayerDeclaredToKeep) {
  for (const auto& [type, kernels] : {std::pair{"fp64", "reference"}, std::pair{"fp32", "auto"}}) {
    Bench bench("cpu", kernels, 1);
    const auto precision = bench.make_component<Precision>(type, "");
    std::map<std::string, std::vector<double>> gradients[2];
    for (const bool keep : {false, true}) {
      HarnessSpec spec = spec_of(bench, *precision);
      spec.keep_values = keep, spec.poison = !keep;
      std::vector<NodeSpec> nodes{{"before", "gelu", {"x"}, {}}}, own = GetParam().nodes();
      own[0].inputs[0] = "before";
      nodes.push_back(own[0]);
      nodes.push_back({"after", "gelu", {"n"}, {}});
      LayerHarness harness(spec, nodes, {"after"}, GetParam().fields());
      harness.forward();
      harness.backward(1.0, true);
      gradients[keep] = harness.all_gradients();
    }
    EXPECT_EQ(gradients[false], gradients[true]) << type;
    for (const auto& [name, values] : gradients[false])
      for (const double value : values) ASSERT_TRUE(std::isfinite(value)) << name;
  }
}

// Bounds: a few hundred roundings of 2^-24 (float32) or 2^-8 (bfloat16) relative to the largest element of a
// tensor; cancellation in the layer's sums costs another factor.
TEST_P(MambaGradients, N5_AgreeInLowerPrecision) {
  for (const auto& [type, bound] : {std::pair{"fp32", 2e-5}, std::pair{"bf16", 0.06}}) {
    for (const char* kernels : {"reference", "auto"}) {
      Bench bench("cpu", kernels, 1);
      const auto precision = bench.make_component<Precision>(type, "");
      LayerHarness exact(spec_of(bench_, *exact_), GetParam().nodes(), {"n"}, GetParam().fields()),
          rough(spec_of(bench, *precision), GetParam().nodes(), {"n"}, GetParam().fields());
      spread_parameters(rough);
      for (const char* field : {"x", "d_n"}) {  // the numbers that the low-precision graph can hold
        const auto& inputs = rough.executor().inputs();
        for (std::size_t i = 0; i < rough.fields().size(); ++i)
          if (rough.fields()[i].name == field) exact.set_field(field, read(*bench.device, inputs[i]));
      }
      for (const ParameterInfo& info : exact.executor().parameters())
        exact.set_parameter(info.spec.name, rough.parameter(info.spec.name));
      const double expected = exact.forward();
      exact.backward(1.0, true);
      EXPECT_NEAR(rough.forward(), expected, bound * (1 + std::abs(expected))) << type;
      rough.backward(1.0, true);
      const auto gradients = rough.all_gradients();
      for (const auto& [name, gradient] : exact.all_gradients())
        EXPECT_LT(relative_error(gradients.at(name), gradient), bound)
            << type << " " << kernels << " " << name;
    }
  }
}

}  // namespace
}  // namespace tenon::testing::ssm_gradients_test
