// LeNet-5: its size, its layers, that it learns, and that folding its maps changes no bit.
#include "training.hpp"

#include <tenon/parallel.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

using ::testing::ElementsAre;

TEST(LeNet5Model, HasExactly61706Parameters) {
  for (const std::int64_t size : {28, 32}) {
    const Shape image{1, size, size};
    ImageTrainer trainer("lenet5", "", "fp32", "auto", patterns(2, image, "count"));
    EXPECT_EQ(trained_elements(trainer.harness().executor()), 61'706) << size;
    std::map<std::string, std::string> shapes;
    for (const ParameterInfo& info : trainer.harness().executor().parameters())
      shapes[info.spec.name] = info.local.text();
    const std::map<std::string, std::string> expected = {
        {"conv1.weight", "[6, 1, 5, 5]"},  {"conv1.bias", "[6]"},
        {"conv2.weight", "[16, 6, 5, 5]"}, {"conv2.bias", "[16]"},
        {"fc1.weight", "[120, 400]"},      {"fc1.bias", "[120]"},
        {"fc2.weight", "[84, 120]"},       {"fc2.bias", "[84]"},
        {"fc3.weight", "[10, 84]"},        {"fc3.bias", "[10]"}};
    EXPECT_EQ(shapes, expected);
  }
}

TEST(LeNet5Model, TakesOtherMapsAndPools) {
  Bench bench("cpu", "auto", 1);
  std::vector<std::string> types;
  const auto model = bench.make_component<Model>("lenet5", "activation = \"silu\"\npool = \"average\"");
  for (const NodeSpec& node : model->build(image_data({1, 28, 28}, 10)).nodes) types.push_back(node.type);
  EXPECT_THAT(types,
              ElementsAre("conv2d", "silu", "average_pool2d", "conv2d", "silu", "average_pool2d", "flatten",
                          "linear", "silu", "linear", "silu", "linear", "accuracy", "softmax_cross_entropy"));
}

TEST(LeNet5Model, LearnsPatterns) {
  for (const char* precision : {"fp32", "bf16"}) {
    ImageTrainer trainer("lenet5", "", precision, "auto", patterns(32, {1, 28, 28}, "seen"), false);
    const double first = trainer.differentiate();
    for (int step = 0; step < 80; ++step) {
      trainer.update(0.02);
      trainer.differentiate();
    }
    const auto unseen = patterns(32, {1, 28, 28}, "unseen");
    for (const TestField& field : unseen) trainer.harness().set_field(field.name, field.values);
    const double last = trainer.harness().forward({.training = false}) / 32;
    EXPECT_NEAR(first, std::log(10.0), 0.5) << precision;
    EXPECT_LT(last, 0.5 * first) << precision;
  }
}

TEST(LeNet5Model, FoldsItsFourMapsWithoutChangingABit) {
  for (const char* kernels : {"reference", "auto"}) {
    const auto batch = patterns(5, {1, 28, 28}, "fold");
    ImageTrainer folded("lenet5", "", "fp32", kernels, batch, false),
        whole("lenet5", "", "fp32", kernels, batch);
    EXPECT_THAT(folded.harness().executor().folded_nodes(),
                ElementsAre("conv1.act", "conv2.act", "fc1.act", "fc2.act"));
    EXPECT_EQ(folded.differentiate(), whole.differentiate());
    EXPECT_EQ(folded.harness().all_gradients(), whole.harness().all_gradients()) << kernels;
  }
}

TEST(LeNet5Model, HasTheSameBitsWithAnyNumberOfThreads) {
  std::map<std::string, std::vector<double>> first;
  for (const int threads : {1, 2, 3}) {
    ImageTrainer trainer("lenet5", "", "fp32", "reference", patterns(7, {1, 28, 28}, "threads"));
    set_parallel_threads(threads);
    trainer.differentiate();
    if (threads == 1) first = trainer.harness().all_gradients();
    EXPECT_EQ(trainer.harness().all_gradients(), first) << threads;
  }
  set_parallel_threads(1);
}

}  // namespace
}  // namespace tenon::testing
