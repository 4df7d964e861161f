// The relative L2 loss: PyTorch's value and gradients, finite differences, samples that do not count, and
// sums over parts of samples.
#include "relative_l2.hpp"
#include "reference/recorded.hpp"
#include "testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

using fno::RelativeError;
using fno::SampleSums;

NodeSpec loss(std::vector<NamedOption> options = {}) {
  return {"n", "relative_l2", {"x", "t"}, std::move(options)};
}

TEST(RelativeL2, P13_GivesPyTorchsMeanOverSamples) {
  const Recorded recorded("spectral");
  for (const Setting& setting : kSettings) {
    Graphs graphs(setting);
    for (const bool scaled : {false, true}) {
      const std::string name = scaled ? "relative_l2_scaled." : "relative_l2.";
      const auto field = [&](const char* tensor) {
        return TestField{tensor, recorded.shape(name + tensor), DType::kF64, recorded.values(name + tensor)};
      };
      std::vector<NamedOption> options;
      if (scaled) options = {{"offset", 0.5}, {"scale", 2.0}};
      auto harness = graphs.make({loss(options)}, {}, {field("x"), field("t")});
      const double sum = harness->forward(), count = harness->executor().losses()[0].count;
      EXPECT_EQ(count, 3);
      EXPECT_NEAR(sum / count, recorded.values(name + "loss")[0], setting.bound) << setting.precision;
      harness->backward(1 / count, true);
      EXPECT_LT(relative_error(harness->input_gradient("x"), recorded.values(name + "d_x")), setting.bound);
    }
  }
}

TEST(RelativeL2, P8_MatchesFiniteDifferencesInBothArguments) {
  Graphs graphs(kSettings[0]);
  for (const auto& options : {std::vector<NamedOption>{}, {{"offset", 0.7}, {"scale", -0.3}}}) {
    auto harness = graphs.make({loss(options)}, {}, {real_field("x", {3, 2, 4}), real_field("t", {3, 2, 4})});
    std::string where;
    EXPECT_LT(harness->finite_difference_error(where), 1e-9) << where;
  }
}

TEST(RelativeL2, P13_SamplesWithoutARelativeErrorDoNotCount) {
  const double nan = std::nan("");
  for (const Setting& setting : kSettings) {
    Graphs graphs(setting);
    // A target of zeros, one that is padding, one that is met, and one with an error of a half.
    auto harness = graphs.make({loss()}, {},
                               {{"x", {4, 1, 2}, DType::kF64, {1, 2, 3, 4, 5, 6, 3, 6}},
                                {"t", {4, 1, 2}, DType::kF64, {0, 0, nan, 1, 5, 6, 6, 12}}});
    EXPECT_NEAR(harness->forward(), 0.5, 1e-6);
    EXPECT_EQ(harness->executor().losses()[0].count, 2);
    harness->backward(1.0, true);
    const auto dx = harness->input_gradient("x");
    EXPECT_THAT(std::vector<double>(dx.begin(), dx.begin() + 6), ::testing::Each(0.0));
    EXPECT_LT(dx[6], 0);
    EXPECT_LT(dx[7], dx[6]);
  }
}

TEST(RelativeL2, P13_PartsOfASampleAddUpAndAnEmptyPartAddsNothing) {
  const SampleSums parts[] = {{1, 9, 2, 3}, {}, {3, 7, -1, 2}};
  SampleSums sums;
  for (const SampleSums& part : parts) sums += part;
  const RelativeError whole(sums, 0, 1);
  EXPECT_TRUE(whole.counts);
  EXPECT_DOUBLE_EQ(whole.loss, 2.0 / 4.0);
  // Offset 1, scale 2: 4 * 16 + 2 * 2 * 1 + 5 points.
  EXPECT_DOUBLE_EQ(RelativeError(sums, 1, 2).target_norm, std::sqrt(73.0));
  EXPECT_DOUBLE_EQ(RelativeError(sums, 1, 2).loss, 2 * 2 / std::sqrt(73.0));
  const RelativeError nothing(SampleSums{}, 0, 1);
  EXPECT_FALSE(nothing.counts);
  EXPECT_EQ(nothing.loss, 0);
}

TEST(RelativeL2, RefusesWhatDoesNotMatch) {
  Graphs graphs(kSettings[0]);
  try {
    graphs.make({loss()}, {}, {real_field("x", {3, 2, 4}), real_field("t", {3, 2, 5})});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "layer 'n': expected predictions and targets of equal shape, found [3, 2, 4] and [3, 2, 5]");
  }
}

}  // namespace
}  // namespace tenon::testing
