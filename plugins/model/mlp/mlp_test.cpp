// The perceptron: its graph, its gradients through the whole stack, and that it learns what a linear model
// cannot.
#include <tenon/optimizer.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

class MlpModel : public ::testing::Test {
 protected:
  DataInfo data(const Shape& shape) const {
    DataInfo info;
    info.fields = {{"inputs", DType::kF32, shape}, {"targets", DType::kI32, {}}};
    info.attributes = {{"classes", 3}};
    return info;
  }
  GraphSpec build(const std::string& options, const DataInfo& info) {
    return bench_.make_component<Model>("mlp", options)->build(info);
  }
  HarnessSpec spec(Precision& precision) {
    return {
        .layers = &*bench_.layers, .device = &*bench_.device, .host = &bench_.host, .precision = &precision};
  }
  Bench bench_{"cpu", "auto", 1};
};

TEST_F(MlpModel, ChainsItsLayers) {
  const auto types = [&](const std::string& options) {
    std::vector<std::string> result;
    for (const NodeSpec& node : build(options, data({4, 2})).nodes) result.push_back(node.type);
    return result;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(types("hidden = []"), ElementsAre("flatten", "linear", "softmax_cross_entropy"));
  EXPECT_THAT(types("hidden = [5]\nactivation = \"gelu_exact\"\ndropout = 0.5"),
              ElementsAre("flatten", "linear", "gelu", "dropout", "linear", "softmax_cross_entropy"));
  EXPECT_THAT(types("hidden = [5, 6]"),
              ElementsAre("flatten", "linear", "relu", "linear", "relu", "linear", "softmax_cross_entropy"));
}

TEST_F(MlpModel, HasTheGradientsOfItsLoss) {
  const auto precision = bench_.make_component<Precision>("fp64", "");
  LayerHarness harness(
      spec(*precision), build("hidden = [5, 4]\nactivation = \"gelu_tanh\"", data({2, 3})).nodes, {},
      {{"inputs", {3, 2, 3}, DType::kF64, normals(18, "inputs")}, {"targets", {3}, DType::kI32, {2, -1, 0}}});
  std::string where;
  EXPECT_LT(harness.finite_difference_error(where), 1e-9) << where;
}

TEST_F(MlpModel, LearnsWhatALinearModelCannot) {
  // Four corners of a square, opposite ones of one class: no line separates them.
  const std::vector<double> corners = {-1, -1, -1, 1, 1, -1, 1, 1}, classes = {0, 1, 1, 0};
  const auto precision = bench_.make_component<Precision>("fp32", "");
  const auto optimizer = bench_.make_component<Optimizer>("sgd", "momentum = 0.9");
  const auto train = [&](const std::string& options) {
    LayerHarness harness(spec(*precision), build(options, data({2})).nodes, {},
                         {{"inputs", {4, 2}, DType::kF64, corners}, {"targets", {4}, DType::kI32, classes}});
    const auto buffer =
        make_parameter_set("momentum", harness.executor().parameters(), *bench_.device, SetContents::kDense);
    for (std::int64_t step = 0; step < 200; ++step) {
      harness.forward();
      harness.backward(0.25, true);
      for (const ParameterInfo& info : harness.executor().parameters()) {
        const TensorView state[] = {buffer->tensor(info.index)};
        optimizer->step({.lr = 0.1, .count = step + 1, .device = &*bench_.device},
                        {.weights = harness.weights().tensor(info.index),
                         .gradients = harness.gradients().tensor(info.index),
                         .state = state});
      }
      harness.weights().touch(-1);
    }
    return harness.forward() / 4;
  };
  EXPECT_LT(train("hidden = [8]"), 0.05);
  EXPECT_GT(train("hidden = []"), 0.6) << "log 2 is the best that a line can do";
}

TEST_F(MlpModel, FieldsCanBeNamed) {
  DataInfo info = data({4});
  info.fields.push_back({"more", DType::kF32, {2}});
  EXPECT_EQ(build("inputs = 'more'", info).nodes.front().inputs, std::vector<std::string>{"more"});
}

TEST_F(MlpModel, RefusesWhatCannotWork) {
  DataInfo no_targets = data({4});
  no_targets.fields.pop_back();
  DataInfo many_targets = data({4});
  many_targets.fields[1].shape = {7};
  DataInfo whole_inputs = data({4});
  whole_inputs.fields[0].dtype = DType::kI32;
  DataInfo two_inputs = data({4});
  two_inputs.fields.push_back({"more", DType::kF32, {2}});
  DataInfo no_classes = data({4});
  no_classes.attributes.clear();
  const std::tuple<const char*, DataInfo, const char*> cases[] = {
      {"", no_targets,
       "model mlp needs one data field that is one i32 per sample, found 0; the data offers: inputs (f32 "
       "[4]); name "
       "one with the option 'targets'"},
      {"", many_targets, "one i32 per sample, found 0; the data offers: inputs (f32 [4]), targets (i32 [7])"},
      {"", whole_inputs, "one data field that is real, found 0"},
      {"", two_inputs, "one data field that is real, found 2"},
      {"inputs = 'targets'", data({4}),
       "model mlp: option 'inputs' must name a data field that is real, found 'targets'; the data offers: "
       "inputs "
       "(f32 [4]), targets (i32 [])"},
      {"", no_classes, "'classes'"},
      {"classes = 2", data({4}), "must cover the data's 3 classes, found 2"},
      {"hidden = [0]", data({4}), "hidden"},
  };
  for (const auto& [options, info, says] : cases) {
    try {
      build(options, info);
      ADD_FAILURE() << "accepted; expected an error that says: " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(says));
    }
  }
}

}  // namespace
}  // namespace tenon::testing
