// The update rule against trajectories that PyTorch recorded, and its errors.
#include "reference/recorded_row_updates.hpp"
#include "reference/recorded_updates.hpp"

#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

TEST(AdamW, FollowsPyTorch) {
  expect_recorded({"adamw", "betas = [0.9, 0.99]\nweight_decay = 0.1", 1e-2, {"exp_avg", "exp_avg_sq"}},
                  "adamw");
  expect_recorded({"adamw_no_decay", "eps = 1e-6\nweight_decay = 0", 1e-2, {"exp_avg", "exp_avg_sq"}},
                  "adamw");
}

TEST(AdamW, DecaysOnlySlicesThatDecay) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("adamw", "weight_decay = 0.5");
  const std::vector<double> start = {2.0, -1.0}, zero = {0.0, 0.0};
  OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
  harness.step(zero, 0.1, 1, 1.0, false);
  EXPECT_EQ(harness.weights(), start);
  harness.step(zero, 0.1, 2, 1.0, true);
  EXPECT_LT(relative_error(harness.weights(), std::vector<double>{2.0 * 0.95, -0.95}), 1e-15);
}

TEST(AdamW, RefusesWhatCannotWork) {
  Bench bench("cpu", "auto", 1);
  for (const char* options :
       {"betas = [0.9]", "betas = [0.9, 1.0]", "lr = -1.0", "eps = -1e-8", "weight_decay = -1.0"}) {
    EXPECT_THROW(bench.make_component<Optimizer>("adamw", options), Error) << options;
  }
  EXPECT_EQ(bench.make_component<Optimizer>("adamw", "lr = 0.25")->base_lr(), 0.25);
}

TEST(AdamWRows, FollowPyTorchsSparseAdamWithDuplicatesAndEmptyBags) {
  const std::vector<const char*> states = {"exp_avg", "exp_avg_sq"};
  expect_recorded_rows({"adamw", "betas = [0.9, 0.99]\neps = 1e-3\nweight_decay = 0", 0.01, states}, "adamw");
  expect_recorded_rows({"adamw_decay", "betas = [0.9, 0.99]\neps = 1e-3\nweight_decay = 0.5", 0.01, states},
                       "adamw");
}

TEST(AdamWRows, MoveAsADenseTensorWhenAllAreRead) {
  expect_rows_equal_dense("adamw", "weight_decay = 0.1", 0.01, true);
}

TEST(AdamWRows, OfATableWithoutDecayAreNotDecayed) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("adamw", "weight_decay = 0.5");
  ParameterInfo table;
  table.spec.role = Role::kRowTable;
  for (const bool decay : {true, false}) {
    table.spec.decay = decay;
    static_cast<OptimizerBinding*>(optimizer->query(OptimizerBinding::kId))
        ->bind({{&table, 1}, {}, nullptr, nullptr});
    RowHarness rows(*bench.device, *optimizer, DType::kF64, 1, {2.0, 2.0});
    rows.step({1}, {0.0}, 0.1, 1, 1.0);
    EXPECT_EQ(rows.weights(), (std::vector<double>{2.0, decay ? 2.0 * 0.95 : 2.0}));
  }
}

}  // namespace
}  // namespace tenon::testing
