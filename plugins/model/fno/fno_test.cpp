// The operator as a whole: its graph, the counts of its parameters, PyTorch's numbers, gradients by Taylor's
// theorem, and one set of weights on two grids.
#include "reference/recorded.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

using Integer = std::int64_t;

class FnoModel : public ::testing::Test {
 protected:
  static DataInfo data(const Shape& x, const Shape& y) {
    DataInfo info;
    info.fields = {{"x", DType::kF32, x}, {"y", DType::kF32, y}};
    return info;
  }
  GraphSpec build(const std::string& options, const DataInfo& info) {
    return bench_.make_component<Model>("fno", options)->build(info);
  }
  std::unique_ptr<LayerHarness> harness(const std::string& precision, const std::string& options,
                                        std::vector<TestField> fields) {
    made_.push_back(bench_.make_component<Precision>(precision, ""));
    const auto sample = [&](std::size_t i) { return Shape(fields[i].shape.extents().subspan(1)); };
    const GraphSpec graph = build(options, data(sample(0), sample(1)));
    return std::make_unique<LayerHarness>(HarnessSpec{.layers = &*bench_.layers,
                                                      .device = &*bench_.device,
                                                      .host = &bench_.host,
                                                      .precision = &*made_.back()},
                                          graph.nodes, std::vector<std::string>{}, std::move(fields));
  }
  std::int64_t trained(const std::string& options, const Shape& x, const Shape& y) {
    made_.push_back(bench_.make_component<Precision>("fp32", ""));
    ExecutorSpec spec;
    spec.layers = &*bench_.layers;
    spec.device = &*bench_.device;
    spec.host = &bench_.host;
    spec.precision = &*made_.back();
    const DataInfo info = data(x, y);
    const Executor executor(spec, build(options, info), info);
    std::int64_t total = 0;
    for (const ParameterInfo& parameter : executor.parameters()) {
      if (parameter.spec.role == Role::kParameter) total += parameter.local.elements();
    }
    return total;
  }
  std::string refusal(const std::string& options, const DataInfo& info) {
    try {
      build(options, info);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Bench bench_{"cpu", "auto", 1};
  std::vector<Made<Precision>> made_;
};

TEST_F(FnoModel, ChainsItsLayers) {
  const auto types = [&](const std::string& options) {
    std::vector<std::string> result;
    for (const NodeSpec& node : build(options, data({1, 16, 16}, {1, 16, 16})).nodes)
      result.push_back(node.type);
    return result;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(types("layers = 1\ncoordinates = false\nloss = \"mse\""),
              ElementsAre("channel_linear", "spectral_conv", "channel_linear", "residual", "channel_linear",
                          "gelu", "channel_linear", "relative_l2", "mse"));
  EXPECT_THAT(
      types("layers = 2\nnorm = \"batch\"\nactivation = \"relu\"\npadding = [0.25, 0]"),
      ElementsAre("coordinates", "channel_linear", "pad_far", "spectral_conv", "channel_linear", "residual",
                  "batch_norm", "relu", "spectral_conv", "channel_linear", "residual", "batch_norm",
                  "crop_far", "channel_linear", "relu", "channel_linear", "relative_l2", "relative_l2"));
}

// Li et al. 2021 and their scripts; coordinates are among the inputs that the counts name.
TEST_F(FnoModel, P11_HasThePublishedNumbersOfParameters) {
  const std::string two = "modes = [8]\nwidth = 20\n", three = "modes = [8]\nwidth = 20\n",
                    batch = "norm = \"batch\"";
  EXPECT_EQ(trained(two, {10, 64, 64}, {1, 64, 64}), 414357);
  EXPECT_EQ(trained(two + batch, {10, 64, 64}, {1, 64, 64}), 414517);
  EXPECT_EQ(trained(three, {10, 16, 16, 16}, {1, 16, 16, 16}), 6558377);
  EXPECT_EQ(trained(three + batch, {10, 16, 16, 16}, {1, 16, 16, 16}), 6558537);
  EXPECT_EQ(trained("modes = [12]\nwidth = 32", {1, 85, 85}, {1, 85, 85}), 2368001);
}

TEST_F(FnoModel, P8_GivesPyTorchsOutputLossAndGradients) {
  const Recorded recorded("spectral");
  const auto field = [&](const char* tensor, const char* as) {
    const std::string name = std::string("fno.") + tensor;
    return TestField{as, recorded.shape(name), DType::kF64, recorded.values(name)};
  };
  // PyTorch's own float32 loses 4e-7.
  for (const auto& [precision, bound] : {std::pair{"fp64", 1e-12}, std::pair{"fp32", 5e-6}}) {
    auto graph = harness(
        precision, "width = 3\nmodes = [3, 2]\nlayers = 2\nprojection = 4\npadding = [0.3333333333333333]",
        {field("x", "x"), field("t", "y")});
    ASSERT_EQ(graph->executor().parameters().size(), 12u);
    for (const ParameterInfo& info : graph->executor().parameters())
      graph->set_parameter(info.spec.name, recorded.values("fno.init." + info.spec.name));
    const double loss = graph->forward();
    EXPECT_NEAR(loss / 2, recorded.values("fno.loss")[0], bound);
    EXPECT_EQ(graph->executor().losses().size(), 2u);
    for (const LossValue& value : graph->executor().losses()) EXPECT_EQ(value.sum, loss) << value.metric;
    EXPECT_LT(relative_error(graph->value("out"), recorded.values("fno.y")), bound);
    graph->backward(0.5, true);
    for (const ParameterInfo& info : graph->executor().parameters())
      EXPECT_LT(
          relative_error(graph->gradient(info.spec.name), recorded.values("fno.grad." + info.spec.name)),
          bound)
          << precision << " " << info.spec.name;
  }
}

/// Slope of log error against log h, by least squares.
double slope(const std::vector<double>& h, const std::vector<double>& error) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < h.size(); ++i) {
    const double x = std::log(h[i]), y = std::log(error[i]);
    sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  const auto n = static_cast<double>(h.size());
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

// The remainder of f(p + h dp) - f(p) after the gradient term is of second order, in 1 to 3 dimensions.
TEST_F(FnoModel, P8_TaylorRemaindersAreOfSecondOrder) {
  for (const Shape& points : {Shape{2, 1, 12}, Shape{2, 1, 6, 7}, Shape{1, 1, 4, 5, 6}}) {
    auto graph = harness("fp64", "width = 4\nmodes = [2]\nlayers = 3\nprojection = 6\npadding = [0.25]",
                         {{"x", points, DType::kF64, normals(points.elements(), "x")},
                          {"y", points, DType::kF64, normals(points.elements(), "y")}});
    const double start = graph->forward();
    graph->backward(1.0, true);
    std::map<std::string, std::vector<double>> weights, directions;
    double norm = 0, product = 0;
    for (const ParameterInfo& info : graph->executor().parameters()) {
      const std::string& name = info.spec.name;
      weights[name] = graph->parameter(name);
      directions[name] = normals(info.local.elements(), name);
      for (const double d : directions[name]) norm += d * d;
    }
    norm = std::sqrt(norm);
    for (auto& [name, direction] : directions) {
      const auto gradient = graph->gradient(name);
      for (std::size_t i = 0; i < direction.size(); ++i) {
        direction[i] *= 1e-3 / norm;
        product += gradient[i] * direction[i];
      }
    }
    std::vector<double> steps, remainders;
    for (double h = 1; h > 0.05; h /= 2) {
      for (const auto& [name, weight] : weights) {
        auto moved = weight;
        for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += h * directions.at(name)[i];
        graph->set_parameter(name, moved);
      }
      steps.push_back(h);
      remainders.push_back(std::abs(graph->forward() - start - h * product));
    }
    EXPECT_NEAR(slope(steps, remainders), 2, 0.2) << points.text();
    EXPECT_GT(std::abs(product), 100 * remainders.back());
  }
}

TEST_F(FnoModel, RefusesDataThatItCannotMap) {
  EXPECT_EQ(refusal("", data({16, 16}, {1, 16, 16})),
            "model fno: data fields 'x' and 'y' must have the same points after their channels, found [16, "
            "16] and "
            "[1, 16, 16]");
  EXPECT_EQ(
      refusal("input = \"a\"", data({1, 16}, {1, 16})),
      "model fno: option 'input' must name a data field that is real [channels, points...] with 1 to 4 "
      "dimensions of points, found 'a'; the data offers: x (f32 [1, 16]), y (f32 [1, 16]); name another, or "
      "change types and shapes of [data]");
  EXPECT_EQ(refusal("padding = [0.1, 0.2]", data({1, 16}, {1, 16})),
            "model fno: expected padding for 1 dimension or one number for all, found 2");
}

TEST_F(FnoModel, RefinesItsOutputForTargetsOnAFinerGrid) {
  const DataInfo info = data({1, 8, 8}, {1, 16, 16});
  const GraphSpec graph = build("modes = [2]\nrefine = 2", info);
  for (const NodeSpec& node : graph.nodes) {
    if (node.type != "relative_l2") continue;
    EXPECT_EQ(node.inputs, (std::vector<std::string>{"refined", "y"}));
  }
  EXPECT_EQ(trained("modes = [2]\nrefine = 2", {1, 8, 8}, {1, 16, 16}),
            trained("modes = [2]", {1, 8, 8}, {1, 8, 8}));
  EXPECT_EQ(refusal("modes = [2]\nrefine = 3", info),
            "model fno: data fields 'x' and 'y' must have points in the ratio 1 : 3 (option 'refine') after "
            "their channels, found [1, 8, 8] and [1, 16, 16]");
}

TEST_F(FnoModel, MeasuresInTheUnitsOfStandardisedTargets) {
  DataInfo info = data({1, 8}, {1, 8});
  info.fields[1].offset = 3;
  info.fields[1].scale = 0.5;
  for (const NodeSpec& node : build("modes = [2]", info).nodes) {
    if (node.type != "relative_l2") continue;
    EXPECT_EQ(std::get<double>(node.options.at(1).value), 3) << node.options.at(1).name;
    EXPECT_EQ(std::get<double>(node.options.at(2).value), 0.5) << node.options.at(2).name;
  }
}

}  // namespace
}  // namespace tenon::testing
