// Layers around the spectral ones: linear maps of channels, coordinates, padding and cropping.
#include "testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

/// A channel_linear and the equivalent conv2d, side by side; x is used twice, so that its gradient
/// accumulates.
struct Twins {
  Twins(Graphs& graphs, const Shape& shape, bool bias) {
    const std::vector<std::pair<std::string, std::vector<NamedOption>>> types{
        {"channel_linear", {{"features", Integer{6}}, {"bias", bias}}},
        {"conv2d",
         {{"features", Integer{6}}, {"bias", bias}, {"kernel", Integers{1}}, {"chunk", Integer{1}}}}};
    for (const auto& [type, options] : types) {
      auto& twin =
          twins.emplace_back(graphs.make({layer(type, options)}, {"n", "x"}, {real_field("x", shape)}));
      twin->set_parameter("n.weight", normals(6 * shape[1], "weight"));
      if (bias) twin->set_parameter("n.bias", normals(6, "bias"));
      twin->forward();
      twin->backward(1.0, true);
      twin->backward(1.0, false);  // gradients of parameters accumulate
    }
  }
  std::vector<std::unique_ptr<LayerHarness>> twins;
};

// conv2d with a window of one point is another path to the same sums.
TEST(ChannelLinear, IsAConvolutionWithAWindowOfOnePoint) {
  for (const Setting& setting : kSettings) {
    Graphs graphs(setting, 2);
    for (const bool bias : {true, false})
      for (const Shape& shape : {Shape{3, 4, 5, 2}, Shape{2, 1, 7, 37}, Shape{1, 40, 16, 16}}) {
        const Twins both(graphs, shape, bias);
        LayerHarness &linear = *both.twins[0], &window = *both.twins[1];
        EXPECT_LT(relative_error(linear.value("n"), window.value("n")), setting.bound);
        EXPECT_LT(relative_error(linear.input_gradient("x"), window.input_gradient("x")), setting.bound);
        EXPECT_LT(relative_error(linear.gradient("n.weight"), window.gradient("n.weight")), setting.bound);
        if (bias) {
          EXPECT_LT(relative_error(linear.gradient("n.bias"), window.gradient("n.bias")), setting.bound);
        }
      }
  }
}

// A policy that rounds operands gets the same rows as from a convolution, one sample a call: its result has
// the same bits.
TEST(ChannelLinear, GivesPoliciesTheRowsOfItsPoints) {
  for (const char* kernels : {"reference", "auto"}) {
    std::vector<std::vector<double>> values;
    for (const char* precision : {"bf16", "fp8", "nvfp4"}) {
      Graphs graphs({precision, kernels, 0}, 2);
      const Twins both(graphs, {3, 32, 8, 6}, true);
      LayerHarness &linear = *both.twins[0], &window = *both.twins[1];
      SCOPED_TRACE(std::string(precision) + ", " + kernels);
      EXPECT_EQ(linear.value("n"), window.value("n"));
      EXPECT_EQ(linear.input_gradient("x"), window.input_gradient("x"));
      EXPECT_EQ(linear.gradient("n.weight"), window.gradient("n.weight"));
      EXPECT_THAT(values, Not(Contains(linear.value("n")))) << "the policy rounds nothing";
      values.push_back(linear.value("n"));
    }
  }
}

TEST(Fields, P8_MatchFiniteDifferencesAlsoWhereGradientsAreAdded) {
  const std::vector<std::pair<NodeSpec, Shape>> cases = {
      {layer("channel_linear", {{"features", Integer{3}}}), {2, 2, 5}},
      {layer("channel_linear", {{"features", Integer{2}}, {"bias", false}, {"init_scale", 0.5}}),
       {3, 3, 2, 2, 1, 2}},
      {layer("coordinates", {}), {2, 2, 3, 2}},
      {layer("pad_far", {{"widths", Integers{2}}}), {2, 2, 3, 2}},
      {layer("pad_far", {{"widths", Integers{0, 1, 2}}}), {2, 1, 2, 3, 2}},
      {layer("crop_far", {{"widths", Integers{1, 0}}}), {2, 2, 3, 4}},
      {layer("refine", {{"factor", Integer{1}}}), {2, 1, 3}},
      {layer("refine", {{"factor", Integer{3}}}), {2, 2, 3, 2}},
      {layer("refine", {{"factor", Integer{2}}, {"behind", std::string("zero")}}), {1, 2, 1, 3}},
      {layer("refine", {{"factor", Integer{2}}, {"behind", std::string("first")}}), {1, 1, 2, 1, 3}}};
  Graphs graphs(kSettings[0]);
  for (const auto& [node, shape] : cases)
    for (const std::vector<std::string>& pulled : {std::vector<std::string>{"n"}, {"n", "x"}}) {
      auto harness = graphs.make({node}, pulled, {real_field("x", shape)});
      std::string where;
      EXPECT_LT(harness->finite_difference_error(where), 1e-9) << node.type << ", worst: " << where;
    }
}

TEST(Coordinates, AreIndicesOverTheirNumber) {
  Graphs graphs(kSettings[2]);
  auto harness = graphs.make({layer("coordinates", {})}, {"n"},
                             {{"x", {2, 1, 2, 4}, DType::kF64, std::vector<double>(16, 7.0)}});
  harness->forward();
  const auto y = harness->value("n");
  for (const std::ptrdiff_t sample : {0, 1}) {
    const auto channel = [&](std::ptrdiff_t c) {
      const auto begin = y.begin() + (sample * 3 + c) * 8;
      return std::vector<double>(begin, begin + 8);
    };
    EXPECT_THAT(channel(0), ::testing::Each(7.0));
    EXPECT_THAT(channel(1), ElementsAre(0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5));
    EXPECT_THAT(channel(2), ElementsAre(0, 0.25, 0.5, 0.75, 0, 0.25, 0.5, 0.75));
  }
}

TEST(Refine, KeepsPointsAndLinesBetweenThem) {
  Graphs graphs(kSettings[2]);
  const auto refined = [&](const char* behind, const Shape& shape, std::vector<double> values,
                           Integer factor) {
    auto harness = graphs.make({layer("refine", {{"factor", factor}, {"behind", std::string(behind)}})},
                               {"n"}, {{"x", shape, DType::kF64, std::move(values)}});
    harness->forward();
    return harness->value("n");
  };
  EXPECT_THAT(refined("last", {1, 1, 2}, {1, 3}, 2), ElementsAre(1, 2, 3, 3));
  EXPECT_THAT(refined("zero", {1, 1, 2}, {1, 3}, 2), ElementsAre(1, 2, 3, 1.5));
  EXPECT_THAT(refined("first", {1, 1, 2}, {1, 3}, 2), ElementsAre(1, 2, 3, 2));
  EXPECT_THAT(refined("last", {1, 1, 2, 2}, {0, 4, 8, 16}, 2),
              ElementsAre(0, 2, 4, 4, 4, 7, 10, 10, 8, 12, 16, 16, 8, 12, 16, 16));
  EXPECT_THAT(refined("last", {2, 2, 1}, {1, 2, 3, 4}, 3), ElementsAre(1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4));
}

// An affine function of the place i / n is its own interpolation wherever there is a next point.
TEST(Refine, ReproducesAffineFieldsInEveryNumberOfDimensions) {
  const Shape cases[] = {{2, 1, 5}, {1, 2, 4, 3}, {1, 1, 3, 2, 4}, {1, 1, 2, 3, 2, 3}};
  constexpr Integer kFactor = 4;
  const auto affine = [](const Shape& shape) {  // and where all coordinates are before the last point's
    std::vector<double> values;
    for (Integer e = 0; e < shape.elements(); ++e) {
      double value = 1;
      Integer rest = e;
      for (int d = shape.rank() - 1; d >= 2; --d) {
        value +=
            static_cast<double>(d) * static_cast<double>(rest % shape[d]) / static_cast<double>(shape[d]);
        rest /= shape[d];
      }
      values.push_back(value);
    }
    return values;
  };
  const auto between = [](const Shape& shape, Integer e) {
    for (int d = shape.rank() - 1; d >= 2; --d) {
      if (e % shape[d] > shape[d] - kFactor) return false;
      e /= shape[d];
    }
    return true;
  };
  for (const Setting& setting : kSettings) {
    Graphs graphs(setting, 2);
    for (const Shape& coarse : cases) {
      Shape fine = coarse;
      for (int d = 2; d < fine.rank(); ++d) fine[d] *= kFactor;
      auto harness = graphs.make({layer("refine", {{"factor", kFactor}})}, {"n"},
                                 {{"x", coarse, DType::kF64, affine(coarse)}});
      harness->forward();
      const std::vector<double> found = harness->value("n"), wanted = affine(fine);
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t e = 0; e < found.size(); ++e) {
        if (!between(fine, static_cast<Integer>(e))) continue;
        EXPECT_NEAR(found[e], wanted[e], 10 * setting.bound) << coarse.text() << " " << e;
      }
    }
  }
}

TEST(Margins, LieBehindTheLastPoint) {
  Graphs graphs(kSettings[2]);
  auto padded = graphs.make({layer("pad_far", {{"widths", Integers{1, 2}}})}, {"n"},
                            {{"x", {1, 1, 2, 2}, DType::kF64, {1, 2, 3, 4}}});
  padded->forward();
  EXPECT_THAT(padded->value("n"), ElementsAre(1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0));
  auto cropped = graphs.make({layer("crop_far", {{"widths", Integers{1, 2}}})}, {"n"},
                             {{"x", {1, 1, 2, 3}, DType::kF64, {1, 2, 3, 4, 5, 6}}});
  cropped->forward();
  EXPECT_THAT(cropped->value("n"), ElementsAre(1));
}

TEST(Margins, RefuseWidthsThatDoNotFit) {
  Graphs graphs(kSettings[0]);
  EXPECT_EQ(
      graphs.refusal({layer("crop_far", {{"widths", Integers{0, 4}}})}, {real_field("x", {1, 2, 3, 4})}),
      "layer 'n': dimension 3 of x [1, 2, 3, 4] has 4 points, found a width of 4 to remove");
  EXPECT_EQ(
      graphs.refusal({layer("pad_far", {{"widths", Integers{1, 1, 1}}})}, {real_field("x", {1, 2, 3, 4})}),
      "layer 'n': expected widths for 2 dimensions or one number for all, found 3 for x [1, 2, 3, 4]");
}

}  // namespace
}  // namespace tenon::testing
