// Property 17, check 8.3 in two dimensions: pressures and saturations from NumPy, the one-dimensional front,
// conservation, bounds and symmetry.
#include "two_phase.hpp"
#include "buckley_leverett.hpp"
#include "reference/recorded.hpp"

#include <tenon/testing/samples.hpp>

#include <cmath>
#include <numeric>

namespace tenon::porous {
namespace {

using ::testing::HasSubstr;
using testing::make_simulator;
using testing::Recorded;
using testing::Sample;

double largest_difference(std::span<const double> a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

/// Uniform permeability, inflow at one corner and outflow at the opposite one.
Reservoir quarter_five_spot(std::size_t n) {
  Reservoir reservoir{.nx = n,
                      .ny = n,
                      .width = 1 / static_cast<double>(n),
                      .flow = {0.5},
                      .permeability = std::vector<double>(n * n, 1.0),
                      .rates = std::vector<double>(n * n, 0.0)};
  reservoir.rates.front() = 0.2;
  reservoir.rates.back() = -0.2;
  return reservoir;
}

void advance(Displacement& displacement, double until) {
  while (displacement.time() < until * (1 - 1e-12)) {
    displacement.solve_pressure();
    displacement.move(std::min(0.9 * displacement.stable_step(), until - displacement.time()));
  }
}

TEST(TwoPhase, P17_StatesOfNumPy) {
  const Recorded recorded("simulations");
  Displacement displacement({.nx = 8,
                             .ny = 8,
                             .width = 0.125,
                             .flow = {0.5},
                             .permeability = recorded.values("impes.permeability"),
                             .rates = recorded.values("impes.rates")});
  for (int step = 1; step <= 30; ++step) {
    if (step % 3 == 1) displacement.solve_pressure();
    displacement.move(0.002);
    if (step > 1) continue;
    EXPECT_LE(largest_difference(displacement.pressure(), recorded.values("impes.pressure.1")), 1e-11);
    EXPECT_LE(largest_difference(displacement.outflow(), recorded.values("impes.outflow.1")), 1e-11);
    EXPECT_LE(largest_difference(displacement.saturation(), recorded.values("impes.saturation.1")), 1e-11);
  }
  EXPECT_LE(largest_difference(displacement.saturation(), recorded.values("impes.saturation.30")), 1e-10);
  EXPECT_LE(largest_difference(displacement.pressure(), recorded.values("impes.pressure.30")), 1e-10);
}

TEST(TwoPhase, P17_ALineOfCellsIsTheOneDimensionalFront) {
  constexpr std::size_t kCells = 100;
  const FractionalFlow flow{1};
  for (const bool along_x : {true, false}) {
    Reservoir reservoir{.nx = along_x ? kCells : 1,
                        .ny = along_x ? 1 : kCells,
                        .width = 0.01,
                        .porosity = 1,
                        .flow = flow,
                        .permeability = std::vector<double>(kCells, 1.0),
                        .rates = std::vector<double>(kCells, 0.0)};
    // A core of cross-section h: a velocity of 1 is a rate of h.
    reservoir.rates.front() = 0.01;
    reservoir.rates.back() = -0.01;
    Displacement displacement(std::move(reservoir));
    std::vector<double> expected(kCells, 0.0);
    for (int step = 0; step < 125; ++step) {
      displacement.solve_pressure();
      displacement.move(0.004);
      upwind_step(flow, 0.4, expected);
    }
    EXPECT_LE(largest_difference(displacement.saturation(), expected), 1e-9);
  }
}

TEST(TwoPhase, P17_WaterIsConservedAndSaturationsStayInRange) {
  Reservoir reservoir = quarter_five_spot(16);
  const CosineField field{.points = 16, .at = CosineField::Points::kCentres, .alpha = 2, .tau = 10};
  reservoir.permeability = field.draw(random_key(3, "test"), 0);
  for (double& value : reservoir.permeability) value = std::exp(1.5 * value / field.deviation());
  Displacement displacement(reservoir);
  for (int i = 1; i <= 10; ++i) {
    advance(displacement, 0.1 * i);
    const auto saturation = displacement.saturation();
    const double water = 0.2 / 256 * std::accumulate(saturation.begin(), saturation.end(), 0.0);
    EXPECT_NEAR(water, displacement.injected() - displacement.produced(), 1e-12);
    EXPECT_NEAR(displacement.injected(), 0.2 * 0.1 * i, 1e-12);
    EXPECT_GE(*std::min_element(saturation.begin(), saturation.end()), -1e-9);
    EXPECT_LE(*std::max_element(saturation.begin(), saturation.end()), 1 + 1e-9);
  }
  EXPECT_GT(displacement.produced(), 0.01);  // past breakthrough
}

TEST(TwoPhase, P17_SymmetricReservoirsStaySymmetric) {
  Displacement displacement(quarter_five_spot(12));
  advance(displacement, 0.4);
  for (std::size_t i = 0; i < 12; ++i) {
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NEAR(displacement.saturation()[i * 12 + j], displacement.saturation()[j * 12 + i], 1e-9);
  }
}

TEST(TwoPhase, LongerStepsThanTheStableOneEndTheTask) {
  Displacement displacement(quarter_five_spot(8));
  displacement.solve_pressure();
  try {
    displacement.move(1.5 * displacement.stable_step());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    EXPECT_THAT(error.what(), HasSubstr("step 0 at t = 0: the CFL number 1.5 exceeds 1"));
  }
}

TEST(TwoPhase, TasksDrawWellsAndMedia) {
  const auto made = make_simulator<TwoPhase>(
      "cells = 12\ntime = 0.2\nsnapshots = 2\nmargin = 2\ninjectors = 3\nproducers = 2\nnumbers = 'f64'\n");
  std::vector<int> counts(4, 0);
  for (std::int64_t index = 0; index < 30; ++index) {
    const Sample sample(*made.simulator, {1, index});
    const std::vector<double> wells = sample.values<double>("wells");
    int injecting = 0, producing = 0;
    for (std::size_t at = 0; at < wells.size(); ++at) {
      injecting += wells[at] > 0 ? 1 : 0;
      producing += wells[at] < 0 ? 1 : 0;
      const std::size_t row = at / 12, column = at % 12;
      const bool inside = row >= 2 && row < 10 && column >= 2 && column < 10;
      EXPECT_TRUE(inside || wells[at] == 0) << row << " " << column;
    }
    EXPECT_EQ(producing, 2);
    ASSERT_TRUE(injecting >= 1 && injecting <= 3) << injecting;
    ++counts[injecting];
    EXPECT_NEAR(std::accumulate(wells.begin(), wells.end(), 0.0), 0, 1e-12);
    const std::vector<double> states = sample.values<double>("saturation");
    // 0.1 and 0.2 pore volumes went in; what broke through came out again.
    const auto water = [&](auto begin) { return std::accumulate(begin, begin + 144, 0.0) / 144; };
    EXPECT_TRUE(water(states.begin()) > 0.02 && water(states.begin()) < 0.1 + 1e-9) << water(states.begin());
    EXPECT_TRUE(water(states.begin() + 144) > water(states.begin()) &&
                water(states.begin() + 144) < 0.2 + 1e-9);
  }
  for (int i = 1; i <= 3; ++i) EXPECT_GT(counts[i], 2) << i;
}

TEST(TwoPhase, WellsMustFit) {
  try {
    make_simulator<TwoPhase>("cells = 8\nmargin = 4\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("5 wells do not fit into the 0 x 0 cells that are 4 cells from the rim of 8 x 8"));
  }
}

}  // namespace
}  // namespace tenon::porous
