// The update rule against trajectories that PyTorch recorded, its properties, and its errors.
#include "reference/recorded_row_updates.hpp"
#include "reference/recorded_updates.hpp"

#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

TEST(Adagrad, FollowsPyTorch) {
  expect_recorded({"adagrad", "", 0.05, {"sum"}, "optimizers"}, "adagrad");
  expect_recorded({"adagrad_lr_decay", "lr_decay = 0.1", 0.05, {"sum"}, "optimizers"}, "adagrad");
  expect_recorded({"adagrad_all",
                   "lr_decay = 0.05\nweight_decay = 0.1\ninitial_accumulator = 0.5\neps = 1e-4",
                   0.05,
                   {"sum"},
                   "optimizers"},
                  "adagrad");
}

TEST(Adagrad, ZeroGradientsMoveNothing) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("adagrad", "");
  const std::vector<double> start = {2.0, -1.0}, zero = {0.0, 0.0};
  OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
  for (std::int64_t count = 1; count <= 3; ++count) harness.step(zero, 0.1, count, 1.0, true);
  EXPECT_EQ(harness.weights(), start);
}

// Without eps and initial accumulator the sum scales with the square of the gradients, so steps do not
// change.
TEST(Adagrad, StepsDoNotDependOnTheScaleOfGradients) {
  Bench bench("cpu", "auto", 1);
  const std::vector<double> start = {2.0, -1.0, 0.5}, gradient = {0.3, -0.7, 11.0};
  std::vector<std::vector<double>> ends;
  for (const double scale : {1.0, 1024.0}) {
    const auto optimizer = bench.make_component<Optimizer>("adagrad", "eps = 1e-30");
    OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
    for (std::int64_t count = 1; count <= 3; ++count) harness.step(gradient, 0.1, count, scale, true);
    ends.push_back(harness.weights());
  }
  EXPECT_LT(relative_error(ends[1], ends[0]), 1e-15);
}

TEST(Adagrad, DecaysOnlySlicesThatDecay) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("adagrad", "weight_decay = 0.5");
  const std::vector<double> start = {2.0}, zero = {0.0};
  OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
  harness.step(zero, 0.1, 1, 1.0, false);
  EXPECT_EQ(harness.weights(), start);
  harness.step(zero, 0.1, 2, 1.0, true);
  EXPECT_NEAR(harness.weights()[0], 1.9, 1e-10) << "the first gradient is its own root";
}

TEST(Adagrad, RefusesWhatCannotWork) {
  Bench bench("cpu", "auto", 1);
  for (const char* options : {"eps = 0", "lr = -1.0", "lr_decay = -1.0", "initial_accumulator = -1.0"}) {
    EXPECT_THROW(bench.make_component<Optimizer>("adagrad", options), Error) << options;
  }
  EXPECT_NO_THROW(bench.make_component<Optimizer>("adagrad", "eps = 0\ninitial_accumulator = 0.1"));
}

TEST(AdagradRows, FollowPyTorchWithDuplicatesAndEmptyBags) {
  expect_recorded_rows({"adagrad", "", 0.05, {"sum"}}, "adagrad");
  expect_recorded_rows(
      {"adagrad_all", "lr_decay = 0.1\ninitial_accumulator = 0.5\neps = 1e-4", 0.05, {"sum"}}, "adagrad");
}

TEST(AdagradRows, MoveAsADenseTensorWhenAllAreRead) {
  expect_rows_equal_dense("adagrad", "lr_decay = 0.1\ninitial_accumulator = 0.5", 0.05, false);
}

}  // namespace
}  // namespace tenon::testing
