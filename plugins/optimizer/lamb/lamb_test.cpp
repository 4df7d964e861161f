// The update rule against trajectories computed with NumPy, its invariances, tensors sharded over a model
// mesh, and its errors.
#include "reference/recorded_updates.hpp"

#include <tenon/clock.hpp>
#include <tenon/parallel.hpp>
#include <tenon/transport.hpp>

#include <gtest/gtest.h>

#include <thread>

namespace tenon::testing {
namespace {

const std::vector<const char*> kStates = {"exp_avg", "exp_avg_sq"};

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

std::vector<double> minus(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

TEST(Lamb, FollowsTheAlgorithm) {
  const std::string base = "betas = [0.9, 0.99]\n";
  const std::pair<const char*, std::string> runs[] = {
      {"lamb", base + "weight_decay = 0"},
      {"lamb_decay", base + "weight_decay = 0.1"},
      {"lamb_norm_range", base + "weight_decay = 0\nnorm_range = [0, 1.5]"},
      {"lamb_trust_range", base + "weight_decay = 0\ntrust_range = [0.9, 1.0]"},
  };
  for (const auto& [name, options] : runs)
    expect_recorded({name, options.c_str(), 0.02, kStates, "optimizers"}, "lamb");
}

TEST(Lamb, ZeroGradientsMoveNothing) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("lamb", "weight_decay = 0");
  const std::vector<double> start = {2.0, -1.0}, zero = {0.0, 0.0};
  OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
  harness.step(zero, 0.1, 1, 1.0, true);
  EXPECT_EQ(harness.weights(), start);
}

TEST(Lamb, WeightsOfZeroTakeAdamsStep) {
  Bench bench("cpu", "auto", 1);
  const auto optimizer = bench.make_component<Optimizer>("lamb", "");
  const std::vector<double> zero = {0.0, 0.0}, gradient = {3.0, -5.0};
  OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, zero);
  harness.step(gradient, 0.1, 1, 1.0, true);
  EXPECT_LT(relative_error(harness.weights(), std::vector<double>{-0.1, 0.1}), 1e-6) << "eps is 1e-6";
}

TEST(Lamb, StepsScaleWithWeightsAndNotWithGradients) {
  Bench bench("cpu", "auto", 1);
  const auto start = normals(60, "w"), gradient = normals(60, "g");
  const auto moved = [&](double weights, double gradients) {
    const auto optimizer = bench.make_component<Optimizer>("lamb", "weight_decay = 0\neps = 0");
    std::vector<double> scaled = start;
    for (double& w : scaled) w *= weights;
    OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, scaled, "w", Shape{6, 10});
    harness.step(gradient, 0.05, 1, gradients, true);
    return minus(harness.weights(), scaled);
  };
  const std::vector<double> once = moved(1, 1);
  EXPECT_LT(relative_error(moved(1, 1000), once), 1e-12);
  EXPECT_NEAR(norm(once) / norm(start), 0.05, 1e-12) << "the step is lr times the norm of the weights";
  std::vector<double> eightfold = once;
  for (double& w : eightfold) w *= 8;
  EXPECT_LT(relative_error(moved(8, 1), eightfold), 1e-12);
}

TEST(Lamb, LeavesUndecayedTensorsUnadaptedWhenAsked) {
  Bench bench("cpu", "auto", 1);
  const std::vector<double> start = {3.0, 4.0}, gradient = {1.0, -1.0};
  for (const bool decay : {false, true}) {
    const auto optimizer =
        bench.make_component<Optimizer>("lamb", "adapt_undecayed = false\nweight_decay = 0\neps = 0");
    OptimizerHarness harness(*bench.device, *optimizer, DType::kF64, start);
    harness.step(gradient, 0.1, 1, 1.0, decay);
    EXPECT_NEAR(norm(minus(harness.weights(), start)), decay ? 0.5 : 0.1 * std::sqrt(2.0), 1e-12);
  }
}

// More than one block of the sums, so that the order of blocks matters.
TEST(Lamb, HasTheSameBitsWithAnyNumberOfThreads) {
  const auto start = normals(20000, "w"), gradient = normals(20000, "g");
  std::vector<std::vector<double>> ends;
  for (const int threads : {1, 2, 3}) {
    set_parallel_threads(threads);
    Bench bench("cpu", "auto", threads);
    const auto optimizer = bench.make_component<Optimizer>("lamb", "");
    OptimizerHarness harness(*bench.device, *optimizer, DType::kF32, start);
    for (std::int64_t count = 1; count <= 3; ++count) harness.step(gradient, 0.1, count, 0.5, true);
    ends.push_back(harness.weights());
  }
  set_parallel_threads(1);
  EXPECT_EQ(ends[1], ends[0]);
  EXPECT_EQ(ends[2], ends[0]);
}

// Two ranks hold rows 0-3 and 4-5 of a matrix; in a third case both hold all of it. Each must step as one
// rank with the whole matrix would.
TEST(Lamb, NormsAreOfWholeTensors) {
  const auto start = normals(60, "w"), gradient = normals(60, "g");
  Bench bench("cpu", "auto", 1);
  const auto whole = bench.make_component<Optimizer>("lamb", "");
  OptimizerHarness expected(*bench.device, *whole, DType::kF64, start, "w", Shape{6, 10});
  for (std::int64_t count = 1; count <= 2; ++count) expected.step(gradient, 0.1, count, 1.0, true);

  for (const bool sharded : {true, false}) {
    const auto clock = make_wall_clock();
    const auto transport = bench.make_component<Transport>("thread", "");
    transport->connect({.ranks = 2, .deadline_s = 20, .link = {}, .seed = 1, .clock = clock.get()});
    std::vector<double> ends[2];
    const auto rank = [&](int r) {
      ParameterInfo info = OptimizerHarness::whole("w", DType::kF64, Shape{6, 10});
      const std::int64_t begin = sharded ? (r == 0 ? 0 : 4) : 0, end = sharded ? (r == 0 ? 4 : 6) : 6;
      info.local = Shape{end - begin, 10};
      if (sharded) info.spec.sharding = {{.dim = 0, .axes = {0}, .offsets = {0, 4, 6}}};
      const auto part = [&](const std::vector<double>& all) {
        return std::vector<double>(all.begin() + 10 * begin, all.begin() + 10 * end);
      };
      const auto own = bench.make_component<Optimizer>("lamb", "");
      const std::vector<int> members = {0, 1};
      const auto mesh =
          transport->open(r, {.ranks = members, .name = "grid", .purpose = Purpose::kStatistics, .epoch = 0});
      OptimizerHarness harness(*bench.device, *own, part(start), info, mesh.get(), sharded || r == 0);
      for (std::int64_t count = 1; count <= 2; ++count) harness.step(part(gradient), 0.1, count, 1.0, true);
      ends[r] = harness.weights();
    };
    std::thread other([&] { rank(1); });
    rank(0);
    other.join();
    std::vector<double> joined = ends[0];
    if (sharded) {
      joined.insert(joined.end(), ends[1].begin(), ends[1].end());
    } else {
      EXPECT_EQ(ends[1], ends[0]);
    }
    EXPECT_LT(relative_error(joined, expected.weights()), 1e-14) << sharded;
  }
}

TEST(Lamb, RefusesWhatCannotWork) {
  Bench bench("cpu", "auto", 1);
  for (const char* options : {"betas = [0.9]", "betas = [0.9, 1.0]", "eps = -1.0", "norm_range = [2.0, 1.0]",
                              "trust_range = [1.0]", "norm_range = [-1.0, 1.0]"}) {
    EXPECT_THROW(bench.make_component<Optimizer>("lamb", options), Error) << options;
  }
  try {
    bench.make_component<Optimizer>("lamb", "trust_range = [2.0, 1.0]");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("optimizer lamb: option 'trust_range' must hold the lowest and the "
                        "highest value, such as [0, 10], found two that descend"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tenon::testing
