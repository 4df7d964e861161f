// ResNet-18: its size and names, and logits, gradients, steps and running statistics against PyTorch
// (tests/reference/resnet.safetensors).
#include "reference/recorded.hpp"
#include "training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tenon::testing {
namespace {

/// Relative to the largest element of each float64 tensor. A batch norm over four values amplifies a rounding
/// by up to 1 / deviation, there are twenty of them in a row, and each step feeds the next: PyTorch's own
/// float32 loses what `error_of_float32` in resnet.json states (5e-7 of the logits, 5e-4 of the weights after
/// three steps). The float32 bounds are ten times that; the float64 ones are at least that times 2^-29.
struct Bounds {
  double logits, gradients, loss, weights, evaluation;
};
constexpr Bounds kExact{1e-13, 1e-12, 1e-12, 1e-11, 1e-11}, kSingle{5e-6, 3e-4, 1e-4, 5e-3, 5e-3};

struct Setting {
  const char *name, *precision, *kernels;
  Bounds bounds;
};
std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << s.name;
}
constexpr Setting kSettings[] = {{"f64", "fp64", "reference", kExact},
                                 {"f32_reference", "fp32", "reference", kSingle},
                                 {"f32_fast", "fp32", "auto", kSingle}};

class ResNetAgainstPyTorch : public ::testing::TestWithParam<Setting> {
 protected:
  std::vector<TestField> batch(std::int64_t t) const {
    return {{"image", {4, 3, 8, 8}, DType::kF64, recorded_.row("images", t)},
            {"label", {4}, DType::kI32, recorded_.row("labels", t)}};
  }
  ImageTrainer trainer() const {
    return ImageTrainer("resnet", "width = 2", GetParam().precision, GetParam().kernels, batch(0));
  }
  void begin(ImageTrainer& trainer) const {
    for (const ParameterInfo& info : trainer.harness().executor().parameters()) {
      if (info.spec.role == Role::kBuffer) continue;
      trainer.harness().set_parameter(info.spec.name, recorded_.values("init." + info.spec.name));
    }
  }
  Recorded recorded_{"resnet"};
};

TEST_P(ResNetAgainstPyTorch, HasItsParametersAndBuffersUnderItsNames) {
  ImageTrainer twin = trainer();
  std::set<std::string> names, expected;
  for (const ParameterInfo& info : twin.harness().executor().parameters()) names.insert(info.spec.name);
  for (const std::string& name : recorded_.names()) {
    if (name.starts_with("f64.final.")) expected.insert(name.substr(10));
  }
  EXPECT_EQ(names, expected);
}

TEST_P(ResNetAgainstPyTorch, GivesItsLogitsLossAndGradients) {
  const Bounds& bounds = GetParam().bounds;
  ImageTrainer twin = trainer();
  begin(twin);
  const double loss = recorded_.values("f64.step_loss")[0];
  EXPECT_NEAR(twin.differentiate(), loss, bounds.loss * loss);
  EXPECT_LT(relative_error(twin.harness().value("fc"), recorded_.values("f64.logits")), bounds.logits);
  for (const ParameterInfo& info : twin.harness().executor().parameters()) {
    if (info.spec.role == Role::kBuffer) continue;
    EXPECT_LT(relative_error(twin.harness().gradient(info.spec.name),
                             recorded_.values("f64.grad." + info.spec.name)),
              bounds.gradients)
        << info.spec.name;
  }
}

TEST_P(ResNetAgainstPyTorch, TakesItsThreeStepsAndKeepsItsStatistics) {
  const Bounds& bounds = GetParam().bounds;
  ImageTrainer twin = trainer();
  begin(twin);
  const auto losses = recorded_.values("f64.step_loss");
  for (std::int64_t t = 0; t < 3; ++t) {
    for (const TestField& field : batch(t)) twin.harness().set_field(field.name, field.values);
    const double loss = losses[t];
    EXPECT_NEAR(twin.differentiate(), loss, bounds.loss * loss) << "step " << t;
    twin.update(0.02);
  }
  for (const ParameterInfo& info : twin.harness().executor().parameters()) {
    EXPECT_LT(relative_error(twin.harness().parameter(info.spec.name),
                             recorded_.values("f64.final." + info.spec.name)),
              bounds.weights)
        << info.spec.name;
  }
  for (const TestField& field : batch(0)) twin.harness().set_field(field.name, field.values);
  twin.harness().forward({.training = false});
  EXPECT_LT(relative_error(twin.harness().value("fc"), recorded_.values("f64.eval_logits")),
            bounds.evaluation);
}

INSTANTIATE_TEST_SUITE_P(Settings, ResNetAgainstPyTorch, ::testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ResNetModel, HasExactlyThePublishedNumberOfParameters) {
  Bench bench("cpu", "auto", 1);
  const auto precision = bench.make_component<Precision>("fp32", "");
  const DataInfo data = image_data({3, 32, 32}, 10);
  const std::pair<const char*, std::int64_t> cases[] = {
      {"", 11'173'962}, {"width = 2", 11'420}, {"depth = 34", 21'282'122}};
  for (const auto& [options, expected] : cases) {
    ExecutorSpec spec;
    spec.layers = &*bench.layers, spec.device = &*bench.device, spec.host = &bench.host,
    spec.precision = &*precision;
    spec.training = false;
    const Executor executor(spec, bench.make_component<Model>("resnet", options)->build(data), data);
    EXPECT_EQ(trained_elements(executor), expected) << options;
  }
}

TEST(ResNetModel, LearnsPatternsAndReusesMemory) {
  const auto batch = patterns(10, {3, 16, 16}, "resnet");
  ImageTrainer whole("resnet", "width = 4", "fp32", "auto", batch),
      reused("resnet", "width = 4", "fp32", "auto", batch, false);
  const double first = whole.differentiate();
  EXPECT_EQ(reused.differentiate(), first);
  EXPECT_EQ(reused.harness().all_gradients(), whole.harness().all_gradients());
  EXPECT_LT(reused.harness().executor().activation_bytes(), whole.harness().executor().activation_bytes());
  double last = first;
  for (int step = 0; step < 20; ++step) {
    reused.update(0.05);
    last = reused.differentiate();
  }
  EXPECT_LT(last, 0.5 * first);
}

}  // namespace
}  // namespace tenon::testing
