// The rule against trajectories recorded with PyTorch (reference/record.py), on dense tensors and on rows of
// a table.
#include "reference/recorded.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/optimizer_harness.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace {

using tenon::DType;
using tenon::Optimizer;
using tenon::testing::Bench;
using tenon::testing::OptimizerHarness;
using tenon::testing::relative_error;

template <std::size_t N>
std::span<const double> step_of(const double (&values)[N], int step) {
  return std::span<const double>(values).subspan(step * recorded::kWidth, recorded::kWidth);
}

/// Rows of f64 in memory, all owned by this rank.
class Table final : public tenon::RowTable {
 public:
  Table(std::vector<double> values, std::int64_t width) : values_(std::move(values)), width_(width) {}
  std::int64_t rows() const override { return static_cast<std::int64_t>(values_.size()) / width_; }
  std::int64_t width() const override { return width_; }
  DType dtype() const override { return DType::kF64; }
  std::int64_t owned_first() const override { return 0; }
  std::int64_t owned_last() const override { return rows(); }
  void read(std::span<const std::int64_t> ids, tenon::TensorView out) const override {
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::copy_n(values_.begin() + ids[i] * width_, width_,
                  out.as<double>() + static_cast<std::int64_t>(i) * width_);
  }
  void write(std::span<const std::int64_t> ids, tenon::TensorView rows) override {
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::copy_n(rows.as<double>() + static_cast<std::int64_t>(i) * width_, width_,
                  values_.begin() + ids[i] * width_);
  }
  void versions(std::span<const std::int64_t>, std::span<std::uint64_t> out) const override {
    std::fill(out.begin(), out.end(), 1);
  }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
  std::int64_t width_;
};

/// Largest relative error of weights and momentum over the recorded steps. Gradients are handed over four
/// times too large, as with a loss scale of four.
template <std::size_t N>
double recorded_error(DType dtype, const char* options, const double (&weights)[N],
                      const double (&momentum)[N]) {
  Bench bench("cpu", "auto", 2);
  const auto optimizer = bench.make_component<Optimizer>("lion", options);
  OptimizerHarness harness(*bench.device, *optimizer, dtype, recorded::kStart);
  double worst = 0;
  for (int step = 0; step < recorded::kSteps; ++step) {
    std::vector<double> gradients;
    for (const double g : step_of(recorded::kGradients, step)) gradients.push_back(4 * g);
    harness.step(gradients, 0.05, step + 1, 0.25, true);
    worst = std::max({worst, relative_error(harness.weights(), step_of(weights, step)),
                      relative_error(harness.state(0), step_of(momentum, step))});
  }
  return worst;
}

// Six steps of three roundings each in the weight and in the momentum; the sums do not cancel.
TEST(Lion, FollowsTheRecordedTrajectories) {
  const char* decay = "betas = [0.95, 0.98]\nweight_decay = 0.5";
  EXPECT_LT(recorded_error(DType::kF64, "", recorded::kDefaultWeights, recorded::kDefaultMomentum),
            18 * 1.2e-16);
  EXPECT_LT(recorded_error(DType::kF64, decay, recorded::kDecayWeights, recorded::kDecayMomentum),
            18 * 1.2e-16);
  EXPECT_LT(recorded_error(DType::kF32, "", recorded::kDefaultWeights, recorded::kDefaultMomentum),
            18 * 6e-8);
  EXPECT_LT(recorded_error(DType::kF32, decay, recorded::kDecayWeights, recorded::kDecayMomentum), 18 * 6e-8);
}

TEST(Lion, LeavesUndecayedSlicesWithoutGradientAlone) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("lion", "weight_decay = 0.5");
  const std::vector<double> start = {2.0, -1.0}, zero = {0.0, 0.0};
  OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
  harness.step(zero, 0.1, 1, 1.0, false);
  EXPECT_EQ(harness.weights(), start);
  harness.step(zero, 0.1, 2, 1.0, true);
  EXPECT_LT(relative_error(harness.weights(), std::vector<double>{1.9, -0.95}), 1e-15);
}

TEST(Lion, GivesTheSameBitsWithEveryNumberOfThreads) {
  const std::vector<double> start = tenon::testing::normals(70000, "start");
  const std::vector<double> gradients = tenon::testing::normals(70000, "gradients");
  const auto weights_with = [&](int threads) {
    Bench bench("cpu", "auto", threads);
    const auto optimizer = bench.make_component<Optimizer>("lion", "weight_decay = 0.1");
    OptimizerHarness harness(*bench.device, *optimizer, DType::kF32, start);
    for (int step = 1; step <= 3; ++step) harness.step(gradients, 0.01, step, 1.0, true);
    return harness.weights();
  };
  const auto one = weights_with(1);
  EXPECT_NE(one, start);
  EXPECT_EQ(one, weights_with(2));
}

TEST(Lion, MovesTheRowsThatWereRead) {
  Bench bench("cpu", "auto", 2);
  const auto optimizer = bench.make_component<Optimizer>("lion", "betas = [0.95, 0.98]\nweight_decay = 0.5");
  auto* rows = static_cast<tenon::RowOptimizer*>(optimizer->query(tenon::RowOptimizer::kId));
  ASSERT_NE(rows, nullptr);
  ASSERT_EQ(rows->row_slots().size(), 1u);
  // The recorded tensor as rows 1 to 5 of seven; rows 0 and 6 are never read.
  std::vector<double> start(14, 7.0);
  std::copy(std::begin(recorded::kStart), std::end(recorded::kStart), start.begin() + 2);
  Table weights(start, 2), momentum(std::vector<double>(14, 0.0), 2);
  tenon::RowTable* state[] = {&momentum};
  const std::vector<std::int64_t> ids = {1, 2, 3, 4, 5};
  for (int step = 0; step < recorded::kSteps; ++step) {
    std::vector<double> values(step_of(recorded::kGradients, step).begin(),
                               step_of(recorded::kGradients, step).end());
    rows->step_rows({.lr = 0.05, .count = step + 1, .device = bench.device.component.get()}, weights, state,
                    {.parameter = 0, .ids = ids, .values = {values.data(), tenon::Shape{5, 2}, DType::kF64}});
    const std::span<const double> moved(weights.values());
    EXPECT_LT(relative_error(moved.subspan(2, 10), step_of(recorded::kDecayWeights, step)), 18 * 1.2e-16);
    EXPECT_EQ(moved[0], 7.0);
    EXPECT_EQ(moved[13], 7.0);
  }
}

// [refusals]
TEST(Lion, RefusesWhatCannotWork) {
  Bench bench("cpu", "auto", 1);
  for (const char* options :
       {"betas = [0.9]", "betas = [0.9, 1.0]", "lr = -1.0", "weight_decay = -1.0", "beta1 = 0.9"}) {
    EXPECT_THROW(bench.make_component<Optimizer>("lion", options), tenon::Error) << options;
  }
  EXPECT_EQ(bench.make_component<Optimizer>("lion", "lr = 0.25")->base_lr(), 0.25);
}
// [/refusals]

}  // namespace
