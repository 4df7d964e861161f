// Binary cross-entropy: PyTorch's mean and gradient, also of logits whose probability is 0 or 1 in float64;
// finite differences; labels that do not count; refusals.
#include "reference/recorded.hpp"
#include "testing.hpp"

#include <cmath>

namespace tenon::testing {
namespace {

const std::vector<NodeSpec> kGraph = {{"loss", "bce_with_logits", {"x", "labels"}, {}}};

TEST(BceWithLogits, GivesTheRecordedMeanAndGradient) {
  const Recorded recorded("recsys");
  const std::vector<TestField> fields = {
      {"x", recorded.shape("bce.logits"), DType::kF64, recorded.values("bce.logits")},
      {"labels", recorded.shape("bce.labels"), DType::kI32, recorded.values("bce.labels")}};
  for (const Setting& setting : kSettings) {
    Graphs graphs(setting);
    auto harness = graphs.make(kGraph, {}, fields);
    const double sum = harness->forward(), count = harness->executor().losses()[0].count;
    EXPECT_EQ(count, 11);
    harness->backward(1 / count, true);
    // The arithmetic is float64 in both; a float32 logit such as 0.3 is the recorded number itself.
    EXPECT_NEAR(sum / count, recorded.values("bce.loss")[0], 1e-13 * sum) << setting.name();
    EXPECT_LT(relative_error(harness->input_gradient("x"), recorded.values("bce.d_logits")),
              graphs.exact() ? 1e-14 : 1e-7)
        << setting.name();
  }
}

TEST(BceWithLogits, MatchesFiniteDifferencesAndAddsToGradients) {
  Graphs graphs({"fp64", "reference"});
  const TestField labels{"labels", {5}, DType::kI32, {0, 1, -1, 1, 0}};
  // A column [batch, 1] as a last linear layer gives it, which another layer reads too.
  const std::vector<NodeSpec> nodes = {{"twice", "residual", {"x", "x"}, {}},
                                       {"loss", "bce_with_logits", {"twice", "labels"}, {}}};
  auto harness = graphs.make(nodes, {}, {real_field("x", {5, 1}), labels});
  std::string where;
  EXPECT_LT(harness->finite_difference_error(where), 1e-9) << where;
}

TEST(BceWithLogits, KeepsTheDigitsOfSmallGradients) {
  Graphs graphs({"fp64", "auto"});
  auto harness =
      graphs.make(kGraph, {}, {{"x", {2}, DType::kF64, {40, -40}}, {"labels", {2}, DType::kI32, {1, 0}}});
  harness->forward();
  harness->backward(1, true);
  const double small = std::exp(-40.0);
  EXPECT_NEAR(harness->input_gradient("x")[0] / -small, 1, 1e-12) << "sigmoid(40) - 1 would be zero";
  EXPECT_NEAR(harness->input_gradient("x")[1] / small, 1, 1e-12);
}

TEST(BceWithLogits, TakesBfloat16Logits) {
  Graphs graphs({"bf16", "auto"});
  auto harness = graphs.make(
      kGraph, {}, {{"x", {3}, DType::kF64, {0.5, -2, 1}}, {"labels", {3}, DType::kI32, {1, 1, -1}}});
  const double expected = std::log1p(std::exp(-0.5)) + std::log1p(std::exp(2.0));
  EXPECT_NEAR(harness->forward(), expected, 1e-15) << "0.5 and -2 are bfloat16 numbers, the rest is float64";
  harness->backward(1, true);
  EXPECT_LT(relative_error(harness->input_gradient("x"),
                           std::vector<double>{-1 / (1 + std::exp(0.5)), -1 / (1 + std::exp(-2.0)), 0}),
            0x1p-8);
}

TEST(BceWithLogits, CountsNothingWithoutLabels) {
  Graphs graphs({"fp32", "auto"});
  auto harness = graphs.make(kGraph, {}, {real_field("x", {3}), {"labels", {3}, DType::kI32, {-1, -1, -1}}});
  EXPECT_EQ(harness->forward(), 0);
  EXPECT_EQ(harness->executor().losses()[0].count, 0);
  harness->backward(1, true);
  EXPECT_THAT(harness->input_gradient("x"), ::testing::Each(0.0));
}

TEST(BceWithLogits, RefusesWhatCannotWork) {
  Graphs graphs({"fp32", "auto"});
  const TestField x = real_field("x", {3}), labels{"labels", {3}, DType::kI32, {0, 2, 1}};
  expect_refused(
      [&] {
        graphs.make(kGraph, {}, {x, labels})->forward();
      },
      ErrorKind::kRun, "label 2 of sample 1 of the batch; expected 0, 1, or -1 for one that does not count");
  expect_refused(
      [&] {
        graphs.make(kGraph, {}, {real_field("x", {3, 2}), labels});
      },
      ErrorKind::kConfig, "layer 'loss': expected logits [batch] or [batch, 1], found [3, 2]");
  expect_refused(
      [&] {
        graphs.make(kGraph, {}, {x, {"labels", {3, 2}, DType::kI32, std::vector<double>(6)}});
      },
      ErrorKind::kConfig, "layer 'loss': expected one label for each of the logits [3], found [3, 2]");
  expect_refused(
      [&] {
        graphs.make(kGraph, {}, {x, real_field("labels", {3})});
      },
      ErrorKind::kConfig, "found f32 [3]");
}

}  // namespace
}  // namespace tenon::testing
