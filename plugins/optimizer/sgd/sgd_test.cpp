// The update rule against trajectories that PyTorch recorded, and its errors.
#include "reference/recorded_row_updates.hpp"
#include "reference/recorded_updates.hpp"

#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

TEST(Sgd, FollowsPyTorch) {
  expect_recorded({"sgd_plain", "", 0.05, {}}, "sgd");
  expect_recorded({"sgd_decay", "weight_decay = 0.1", 0.05, {}}, "sgd");
  const std::pair<const char*, const char*> with_momentum[] = {
      {"sgd_momentum", "momentum = 0.9"},
      {"sgd_nesterov", "momentum = 0.9\nnesterov = true"},
      {"sgd_momentum_decay", "momentum = 0.9\nweight_decay = 0.1"},
      {"sgd_nesterov_decay", "momentum = 0.9\nnesterov = true\nweight_decay = 0.1"},
  };
  for (const auto& [name, options] : with_momentum)
    expect_recorded({name, options, 0.05, {"momentum_buffer"}}, "sgd");
}

TEST(Sgd, DampensAllButTheFirstStep) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("sgd", "momentum = 0.5\ndampening = 0.25");
  const std::vector<double> start = {1.0}, gradient = {1.0};
  OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
  harness.step(gradient, 0.1, 1, 1.0, true);
  EXPECT_DOUBLE_EQ(harness.weights()[0], 0.9) << "the buffer is the whole first gradient";
  harness.step(gradient, 0.1, 2, 1.0, true);
  EXPECT_DOUBLE_EQ(harness.state(0)[0], 0.5 + 0.75);
}

TEST(Sgd, DecaysOnlySlicesThatDecay) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("sgd", "weight_decay = 0.5");
  const std::vector<double> start = {2.0}, zero = {0.0};
  OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
  harness.step(zero, 0.1, 1, 1.0, false);
  EXPECT_EQ(harness.weights(), start);
  harness.step(zero, 0.1, 2, 1.0, true);
  EXPECT_DOUBLE_EQ(harness.weights()[0], 1.9);
}

TEST(Sgd, RefusesWhatCannotWork) {
  Bench bench("cpu", "auto", 1);
  for (const char* options : {"nesterov = true", "nesterov = true\nmomentum = 0.9\ndampening = 0.1",
                              "momentum = 1.0", "dampening = 2.0", "lr = -1.0", "weight_decay = -1.0"}) {
    EXPECT_THROW(bench.make_component<Optimizer>("sgd", options), Error) << options;
  }
}

TEST(SgdRows, FollowPyTorchWithDuplicatesAndEmptyBags) {
  expect_recorded_rows({"sgd", "", 0.05, {}}, "sgd");
}

TEST(SgdRows, MoveAsADenseTensorWhenAllAreRead) {
  expect_rows_equal_dense("sgd", "", 0.05, false);
}

TEST(SgdRows, RefuseWhatWouldMoveUnreadRows) {
  const auto refusal = [](const char* options, bool decay) {
    Bench bench("cpu", "auto", 1);
    const auto optimizer = bench.make_component<Optimizer>("sgd", options);
    ParameterInfo table;
    table.spec.name = "emb.0.weight";
    table.spec.role = Role::kRowTable;
    table.spec.decay = decay;
    try {
      static_cast<OptimizerBinding*>(optimizer->query(OptimizerBinding::kId))
          ->bind({{&table, 1}, {}, nullptr, nullptr});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("momentum = 0.9", true),
            "optimizer sgd: momentum cannot be used with the row table 'emb.0.weight': it would keep moving "
            "rows that no batch reads; set momentum = 0, or choose a rule with a rate per row or weight "
            "(adagrad, rowwise_adagrad, adamw)");
  EXPECT_EQ(refusal("weight_decay = 0.1", true),
            "optimizer sgd: weight_decay = 0.1 cannot be used with the row table 'emb.0.weight': it would "
            "move every row in every step; set weight_decay = 0");
  EXPECT_EQ(refusal("weight_decay = 0.1", false), "") << "a table that wants no decay";
  EXPECT_EQ(refusal("", true), "");
}

}  // namespace
}  // namespace tenon::testing
