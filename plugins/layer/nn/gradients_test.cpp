// Every layer: gradients against finite differences in float64, sums over micro-batches and over several
// readers of one value, and the same numbers in float32 and bfloat16.
#include "cases.hpp"

#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

class Gradients : public ::testing::TestWithParam<LayerCase> {
 protected:
  Bench bench_{"cpu", "reference", 1};
  Made<Precision> exact_ = bench_.make_component<Precision>("fp64", "");
};

// Five-point differences with step 1e-3 carry about 1e-12 of truncation and 1e-13 of rounding in these
// graphs.
constexpr double kDifferenceBound = 1e-9;

TEST_P(Gradients, MatchFiniteDifferences) {
  LayerHarness harness = harness_of(bench_, *exact_, GetParam());
  std::string where;
  const double error = harness.finite_difference_error(where);
  EXPECT_LT(error, kDifferenceBound) << "worst: " << where;
}

TEST_P(Gradients, FiniteDifferencesWouldSeeAWrongGradient) {
  LayerHarness harness = harness_of(bench_, *exact_, GetParam());
  harness.forward();
  harness.backward(1.0 + 1e-6, true);
  const auto wrong = harness.all_gradients();
  harness.backward(1.0, true);
  for (const auto& [name, gradient] : harness.all_gradients()) {
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    if (largest == 0) continue;
    EXPECT_GT(relative_error(wrong.at(name), gradient), 100 * kDifferenceBound) << name;
  }
}

TEST_P(Gradients, SumOverMicroBatches) {
  LayerHarness harness = harness_of(bench_, *exact_, GetParam());
  std::map<std::string, std::vector<double>> parts[2], sum;
  const std::vector<TestField> fields = harness.fields();
  const auto load = [&](int micro) {  // the second micro-batch has the samples in reverse
    for (const TestField& field : fields) {
      std::vector<double> values = field.values;
      if (micro == 1 && field.name != "documents") std::reverse(values.begin(), values.end());
      harness.set_field(field.name, values);
    }
    harness.forward({.micro = micro, .micros = 2, .first_sample = micro * fields[0].shape[0]});
  };
  for (int micro = 0; micro < 2; ++micro) {
    load(micro);
    harness.backward(0.5, true);
    parts[micro] = harness.all_gradients();
  }
  for (int micro = 0; micro < 2; ++micro) {
    load(micro);
    harness.backward(0.5, micro == 0);
  }
  for (const ParameterInfo& info : harness.executor().parameters()) {
    if (info.spec.role == Role::kBuffer) continue;
    std::vector<double> expected = parts[0].at(info.spec.name);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += parts[1].at(info.spec.name)[i];
    EXPECT_LT(relative_error(harness.gradient(info.spec.name), expected), 1e-13) << info.spec.name;
  }
}

TEST_P(Gradients, RepeatBitForBitInDirtyMemory) {
  LayerHarness harness = harness_of(bench_, *exact_, GetParam());
  harness.forward();
  harness.backward(1.0, true);
  const auto first = harness.all_gradients();
  for (const ParameterInfo& info : harness.executor().parameters()) {
    const TensorView gradient = harness.gradients().tensor(info.index);
    if (gradient.empty()) continue;
    const std::vector<double> garbage(gradient.elements(), std::nan(""));
    write(*bench_.device, gradient, garbage);
  }
  harness.forward();  // every buffer still holds the last pass's numbers
  harness.backward(1.0, true);
  EXPECT_EQ(harness.all_gradients(), first);
}

TEST_P(Gradients, NeedOnlyWhatTheLayerDeclaredToKeep) {
  const LayerCase c = surrounded(GetParam());
  for (const auto& [type, kernels] : {std::pair{"fp64", "reference"}, std::pair{"fp32", "auto"}}) {
    Bench bench("cpu", kernels, 1);
    const auto precision = bench.make_component<Precision>(type, "");
    std::map<std::string, std::vector<double>> gradients[2];
    for (const bool keep_values : {false, true}) {
      LayerHarness harness({.layers = &*bench.layers,
                            .device = &*bench.device,
                            .host = &bench.host,
                            .precision = &*precision,
                            .keep_values = keep_values},
                           c.nodes, c.pulled, c.fields);
      harness.forward();
      harness.backward(1.0, true);
      gradients[keep_values] = harness.all_gradients();
    }
    EXPECT_EQ(gradients[false], gradients[true]) << type;
  }
}

// Bounds: a few hundred roundings of 2^-24 (float32) or 2^-8 (bfloat16) relative to the largest element of a
// tensor; cancellation in the layers' sums costs another factor.
TEST_P(Gradients, AgreeInLowerPrecision) {
  for (const auto& [type, bound] : {std::pair{"fp32", 2e-5}, std::pair{"bf16", 0.06}}) {
    for (const char* kernels : {"reference", "auto"}) {
      Bench bench("cpu", kernels, 1);
      const auto precision = bench.make_component<Precision>(type, "");
      LayerHarness exact = harness_of(bench_, *exact_, GetParam()),
                   rough = harness_of(bench, *precision, GetParam());
      // Both get the same numbers: those that the low-precision graph can hold.
      for (const TestField& field : exact.fields()) {
        if (!dtype_is_real(field.dtype)) continue;
        const auto& inputs = rough.executor().inputs();
        for (std::size_t i = 0; i < rough.fields().size(); ++i) {
          if (rough.fields()[i].name == field.name)
            exact.set_field(field.name, read(*bench.device, inputs[i]));
        }
      }
      for (const ParameterInfo& info : exact.executor().parameters()) {
        exact.set_parameter(info.spec.name, rough.parameter(info.spec.name));
      }
      const double expected = exact.forward();
      exact.backward(1.0, true);
      EXPECT_NEAR(rough.forward(), expected, bound * (1 + std::abs(expected))) << type;
      rough.backward(1.0, true);
      const auto gradients = rough.all_gradients();
      for (const auto& [name, gradient] : exact.all_gradients()) {
        EXPECT_LT(relative_error(gradients.at(name), gradient), bound)
            << type << " " << kernels << " " << name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, Gradients, ::testing::ValuesIn(layer_cases()),
                         [](const auto& info) { return info.param.name; });

/// The cases in which the pull-back can read the layer's inputs as well, and so writes their gradients first.
/// (A loss is the last reader of its inputs.)
std::vector<LayerCase> cases_with_shared_inputs() {
  std::vector<LayerCase> shared;
  for (LayerCase c : layer_cases()) {
    if (c.pulled.empty()) continue;
    for (const TestField& field : c.fields) {
      if (dtype_is_real(field.dtype)) c.pulled.push_back(field.name);
    }
    if (c.pulled.size() > 1) shared.push_back(c);
  }
  return shared;
}

class GradientsOfSharedInputs : public Gradients {};

TEST_P(GradientsOfSharedInputs, AreAddedTo) {
  LayerHarness harness = harness_of(bench_, *exact_, GetParam());
  std::string where;
  const double error = harness.finite_difference_error(where);
  EXPECT_LT(error, kDifferenceBound) << "worst: " << where;
}

INSTANTIATE_TEST_SUITE_P(Layers, GradientsOfSharedInputs, ::testing::ValuesIn(cases_with_shared_inputs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tenon::testing
