// Spectral convolutions: PyTorch's outputs and gradients, finite differences, weights that do not depend on
// the resolution, bits that do not depend on the batch, and refusals.
#include "reference/recorded.hpp"
#include "testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

struct RecordedConv {
  const char* name;
  Integers modes;
  Integer features;
};
const RecordedConv kRecorded[] = {{"1d", {4}, 2},          {"1d_whole", {5}, 3},  {"2d", {2, 3}, 2},
                                  {"2d_whole", {3, 5}, 2}, {"2d_odd", {2, 3}, 3}, {"3d", {2, 1, 3}, 3},
                                  {"4d", {1, 1, 2, 2}, 2}};

NodeSpec conv(const Integers& modes, Integer features) {
  return layer("spectral_conv", {{"modes", modes}, {"features", features}});
}

TEST(SpectralConv, P11_GivesPyTorchsOutputsAndGradients) {
  const Recorded recorded("spectral");
  for (const Setting& setting : kSettings) {
    Graphs graphs(setting);
    for (const RecordedConv& c : kRecorded) {
      const std::string name = std::string("conv_") + c.name + ".";
      const auto field = [&](const char* tensor, const char* as) {
        return TestField{as, recorded.shape(name + tensor), DType::kF64, recorded.values(name + tensor)};
      };
      auto harness = graphs.make({conv(c.modes, c.features)}, {"n"}, {field("x", "x"), field("d_y", "d_n")});
      harness->set_parameter("n.weight", recorded.values(name + "w"));
      harness->forward();
      harness->backward(1.0, true);
      EXPECT_LT(relative_error(harness->value("n"), recorded.values(name + "y")), setting.bound) << name;
      EXPECT_LT(relative_error(harness->input_gradient("x"), recorded.values(name + "d_x")), setting.bound)
          << name;
      EXPECT_LT(relative_error(harness->gradient("n.weight"), recorded.values(name + "d_w")), setting.bound)
          << name;
    }
  }
}

// With x pulled as well, its gradient accumulates.
TEST(SpectralConv, P8_MatchesFiniteDifferencesAlsoWhereGradientsAreAdded) {
  Graphs graphs(kSettings[0]);
  for (const std::vector<std::string>& pulled : {std::vector<std::string>{"n"}, {"n", "x"}}) {
    for (const auto& [points, modes] : {std::pair{Shape{2, 2, 5}, Integers{3}},
                                        {Shape{2, 2, 4, 5}, Integers{2, 3}},
                                        {Shape{1, 2, 3, 2, 4}, Integers{1, 1, 2}}}) {
      auto harness = graphs.make({conv(modes, 3)}, pulled, {real_field("x", points)});
      std::string where;
      EXPECT_LT(harness->finite_difference_error(where), 1e-9) << points.text() << ", worst: " << where;
    }
  }
}

TEST(SpectralConv, P9_InitialWeightsAreUniformFromZeroAndFunctionsOfTheirPlace) {
  Graphs graphs(kSettings[0]);
  auto harness = graphs.make({conv({8, 9}, 10)}, {"n"}, {real_field("x", {1, 20, 16, 16})});
  const auto weight = harness->parameter("n.weight");
  ASSERT_EQ(weight.size(), 20u * 10 * 16 * 9 * 2);
  const double end = 1.0 / 200;
  double sum = 0;
  for (const double w : weight) {
    EXPECT_GE(w, 0);
    EXPECT_LT(w, end);
    sum += w;
  }
  // The mean of 57,600 draws has a deviation of end / sqrt(12 * 57,600).
  EXPECT_NEAR(sum / static_cast<double>(weight.size()), end / 2, 5 * end / 831);
  auto finer = graphs.make({conv({8, 9}, 10)}, {"n"}, {real_field("x", {2, 20, 30, 40})});
  EXPECT_EQ(finer->parameter("n.weight"), weight);
}

/// A field that both grids can hold: low frequencies alone.
std::vector<double> waves(const Shape& shape) {
  std::vector<double> values;
  const Integer rows = shape[2], columns = shape[3];
  for (Integer line = 0; line < shape[0] * shape[1]; ++line)
    for (Integer i = 0; i < rows; ++i)
      for (Integer j = 0; j < columns; ++j) {
        const double a = 6.283185307179586 * static_cast<double>(i) / static_cast<double>(rows),
                     b = 6.283185307179586 * static_cast<double>(j) / static_cast<double>(columns);
        values.push_back(std::cos(a + static_cast<double>(line)) + std::sin(2 * b - a) + std::sin(b));
      }
  return values;
}

TEST(SpectralConv, IsTheSameOperatorAtEveryResolution) {
  Graphs graphs(kSettings[0]);
  const Shape coarse{1, 2, 8, 10}, fine{1, 2, 24, 30};
  auto small = graphs.make({conv({3, 3}, 2)}, {"n"}, {{"x", coarse, DType::kF64, waves(coarse)}}),
       large = graphs.make({conv({3, 3}, 2)}, {"n"}, {{"x", fine, DType::kF64, waves(fine)}});
  small->forward();
  large->forward();
  const auto y = small->value("n"), whole = large->value("n");
  std::vector<double> sampled;
  for (Integer line = 0; line < 2; ++line)
    for (Integer i = 0; i < 8; ++i)
      for (Integer j = 0; j < 10; ++j) sampled.push_back(whole[(line * 24 + 3 * i) * 30 + 3 * j]);
  EXPECT_LT(relative_error(sampled, y), 1e-13);
}

TEST(SpectralConv, P4_ASampleHasTheSameBitsInAnyBatchAndTeam) {
  for (const Setting& setting : kSettings) {
    const auto all = normals(5 * 3 * 6 * 7, "x");
    const auto run = [&](Integer first, Integer count, int threads) {
      Graphs graphs(setting, threads);
      const std::vector<double> values(all.begin() + first * 126, all.begin() + (first + count) * 126);
      auto harness = graphs.make({conv({2, 3}, 4)}, {"n"}, {{"x", {count, 3, 6, 7}, DType::kF64, values}});
      harness->forward();
      return harness->value("n");
    };
    const auto whole = run(0, 5, 1);
    EXPECT_EQ(run(0, 5, 2), whole);
    EXPECT_EQ(run(0, 5, 3), whole);
    EXPECT_EQ(run(3, 1, 1), std::vector<double>(whole.begin() + 3 * 168, whole.begin() + 4 * 168));
  }
}

/// The output where `part` of the weight of mode (row, column) is moved.
std::vector<double> with_moved(LayerHarness& harness, const std::vector<double>& weight, Integer row,
                               Integer column, Integer part) {
  auto moved = weight;
  moved[(row * 4 + column) * 2 + part] += 1;
  harness.set_parameter("n.weight", moved);
  harness.forward();
  return harness.value("n");
}

TEST(SpectralConv, P11_AnImaginaryPartMattersButForModesThatAreTheirOwnConjugates) {
  Graphs graphs(kSettings[2]);
  auto harness = graphs.make({conv({2, 4}, 1)}, {"n"}, {real_field("x", {1, 1, 8, 6})});
  const auto weight = harness->parameter("n.weight");
  harness->forward();
  const auto y = harness->value("n");
  // x's mode (0, 0) is real; the imaginary part that its weight produces is not read.
  EXPECT_EQ(with_moved(*harness, weight, 0, 0, 1), y);
  EXPECT_NE(with_moved(*harness, weight, 0, 0, 0), y);
  // Mode (1, 0) has its conjugate at (-1, 0), so its imaginary part is no leftover.
  EXPECT_NE(with_moved(*harness, weight, 1, 0, 1), y);
  EXPECT_NE(with_moved(*harness, weight, 3, 3, 1), y);
  EXPECT_NE(with_moved(*harness, weight, 2, 1, 1), y);
}

TEST(SpectralConv, RefusesModesThatDoNotExist) {
  Graphs graphs(kSettings[0]);
  const auto refusal = [&](const Integers& modes, const Shape& x) {
    return graphs.refusal({conv(modes, 2)}, {real_field("x", x)});
  };
  EXPECT_EQ(
      refusal({12}, {1, 2, 16, 32}),
      "layer 'n': dimension 2 of x [1, 2, 16, 32] has 16 points, so at most 8 modes (half of them) can be "
      "kept, found 12; lower modes, or take finer data");
  EXPECT_EQ(refusal({7, 9}, {1, 2, 15, 16}), "");
  EXPECT_EQ(
      refusal({7, 10}, {1, 2, 15, 16}),
      "layer 'n': dimension 3 of x [1, 2, 15, 16] has 16 points, so at most 9 modes (half of them + 1) can "
      "be kept, found 10; lower modes, or take finer data");
  EXPECT_EQ(
      refusal({8, 9}, {1, 2, 15, 16}),
      "layer 'n': dimension 2 of x [1, 2, 15, 16] has 15 points, so at most 7 modes (half of them) can be "
      "kept, found 8; lower modes, or take finer data");
  EXPECT_EQ(refusal({1, 1, 1}, {1, 2, 15, 16}),
            "layer 'n': expected modes for 2 dimensions or one number for all, found 3 for x [1, 2, 15, 16]");
  EXPECT_THAT(refusal({1}, {1, 2}),
              ::testing::HasSubstr("expected input 0 of shape [batch, channels, points...]"));
}

}  // namespace
}  // namespace tenon::testing
