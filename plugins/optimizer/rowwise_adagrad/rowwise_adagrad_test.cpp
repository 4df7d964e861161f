// Tables against a trajectory computed from the formula, dense parameters against PyTorch's Adagrad,
// properties and errors.
#include "reference/recorded_row_updates.hpp"
#include "reference/recorded_updates.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tenon::testing {
namespace {

TEST(RowwiseAdagradRows, FollowTheFormulaWithDuplicatesAndEmptyBags) {
  expect_recorded_rows({"rowwise_adagrad", "", 0.05, {"sum"}}, "rowwise_adagrad");
  expect_recorded_rows({"rowwise_adagrad_all", "eps = 1e-2\ninitial_accumulator = 0.5", 0.05, {"sum"}},
                       "rowwise_adagrad");
}

// recovery.md 3.5: m += mean(g^2), so a row of equal gradients moves as Adagrad's elements do.
TEST(RowwiseAdagradRows, OfWidthOneMoveAsADenseTensor) {
  Bench bench("cpu", "auto", 1);
  const std::vector<double> start = normals(40, "start");
  std::vector<std::int64_t> ids(start.size());
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  const auto optimizer = bench.make_component<Optimizer>("rowwise_adagrad", "initial_accumulator = 0.25");
  RowHarness rows(*bench.device, *optimizer, DType::kF64, 1, start);
  OptimizerHarness dense(*bench.device, *optimizer, DType::kF64, start);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const std::vector<double> gradients = normals(40, "gradient" + std::to_string(step));
    rows.step(ids, gradients, 0.1, step, 1.0);
    dense.step(gradients, 0.1, step, 1.0, true);
  }
  EXPECT_EQ(rows.state(0), dense.state(0));
  EXPECT_LT(relative_error(rows.weights(), dense.weights()), 1e-15);
}

// Widths below and above the eight partial sums; the only state is one number per row.
TEST(RowwiseAdagradRows, KeepTheMeanOfSquaresForEveryWidth) {
  Bench bench("cpu", "auto", 2);
  for (const std::int64_t width : {1, 2, 7, 8, 9, 16, 63, 128}) {
    const auto optimizer = bench.make_component<Optimizer>("rowwise_adagrad", "");
    const std::vector<double> gradient = normals(2 * width, "gradient");
    RowHarness rows(*bench.device, *optimizer, DType::kF64, width, std::vector<double>(gradient.size(), 1.0));
    rows.step({0, 1}, gradient, 0.1, 1, 3.0);
    ASSERT_EQ(rows.state(0).size(), 2u);
    for (std::size_t row = 0; row < 2; ++row) {
      long double squares = 0;
      for (std::int64_t i = 0; i < width; ++i)
        squares +=
            std::pow(3.0L * gradient[row * static_cast<std::size_t>(width) + static_cast<std::size_t>(i)], 2);
      const double mean = static_cast<double>(squares / width);
      EXPECT_NEAR(rows.state(0)[row], mean, 1e-14 * mean) << width;
      const auto first = row * static_cast<std::size_t>(width);
      const double moved = 0.1 * 3.0 * gradient[first] / (std::sqrt(mean) + 1e-10);
      EXPECT_NEAR(rows.weights()[first], 1.0 - moved, 1e-14) << width;
    }
  }
}

TEST(RowwiseAdagradRows, WithoutGradientDoNotMove) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("rowwise_adagrad", "");
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    RowHarness rows(*bench.device, *optimizer, dtype, 2, {1, 2, 3, 4});
    rows.step({1}, {0, 0}, 0.1, 1, 1.0);
    EXPECT_EQ(rows.weights(), (std::vector<double>{1, 2, 3, 4}));
  }
}

TEST(RowwiseAdagrad, DenseParametersFollowPyTorchsAdagrad) {
  expect_recorded({"adagrad", "", 0.05, {"sum"}, "optimizers"}, "rowwise_adagrad");
}

TEST(RowwiseAdagrad, RefusesWhatCannotWork) {
  Bench bench("cpu", "auto", 1);
  for (const char* options : {"eps = 0", "lr = -1.0", "initial_accumulator = -1.0", "weight_decay = 0.1"}) {
    EXPECT_THROW(bench.make_component<Optimizer>("rowwise_adagrad", options), Error) << options;
  }
  EXPECT_NO_THROW(bench.make_component<Optimizer>("rowwise_adagrad", "eps = 0\ninitial_accumulator = 0.1"));
}

}  // namespace
}  // namespace tenon::testing
