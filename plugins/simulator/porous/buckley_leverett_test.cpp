// Property 17, check 8.3: shock, rarefaction, conservation and the errors of first-order upwind differences.
#include "buckley_leverett.hpp"

#include <tenon/testing/samples.hpp>

#include <cmath>
#include <numeric>

namespace tenon::porous {
namespace {

using ::testing::HasSubstr;
using testing::make_simulator;
using testing::Sample;

struct Shock {
  double ratio, saturation, speed, mean;
};
// S* = sqrt(a / (1 + a)), speed f(S*) / S*, mean saturation at breakthrough: specification 8.3.
constexpr Shock kShocks[] = {
    {1, 0.70711, 1.20711, 0.82843}, {0.5, 0.57735, 1.36603, 0.73205}, {2, 0.81650, 1.11237, 0.89898}};

/// Returns the exact state at x / t by bisection of f'(S) = x / t on the falling branch that follows the
/// shock.
double exact(const FractionalFlow& flow, double speed) {
  const double shock = std::sqrt(flow.ratio / (1 + flow.ratio));
  if (speed > flow.flow(shock) / shock) return 0;
  double low = shock, high = 1;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (flow.slope(middle) > speed ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// From S = 0 with dt = 0.4 h.
std::vector<double> driven(const FractionalFlow& flow, std::size_t cells, int steps) {
  std::vector<double> state(cells, 0.0);
  for (int step = 0; step < steps; ++step) upwind_step(flow, 0.4, state);
  return state;
}

double error_at_centres(const FractionalFlow& flow, std::size_t cells, int steps) {
  const std::vector<double> state = driven(flow, cells, steps);
  const double time = 0.4 * steps / static_cast<double>(cells);
  double sum = 0;
  for (std::size_t i = 0; i < cells; ++i)
    sum +=
        std::abs(state[i] - exact(flow, (static_cast<double>(i) + 0.5) / static_cast<double>(cells) / time));
  return sum / static_cast<double>(cells);
}

TEST(BuckleyLeverett, P17_ShockStandsWhereTheTheorySays) {
  for (const Shock& shock : kShocks) {
    const FractionalFlow flow{shock.ratio};
    const double saturation = std::sqrt(shock.ratio / (1 + shock.ratio));
    EXPECT_NEAR(saturation, shock.saturation, 5e-6);
    EXPECT_NEAR(flow.flow(saturation) / saturation, shock.speed, 5e-6);
    EXPECT_NEAR(saturation / flow.flow(saturation), shock.mean, 5e-6);
    // Welge's tangent: the shock is as fast as the wave that follows it.
    EXPECT_NEAR(flow.slope(saturation), shock.speed, 5e-6);
    // In the solution: the cell where the state falls through half of S* at t = 0.5.
    const std::vector<double> state = driven(flow, 2000, 2500);
    std::size_t front = 0;
    while (state[front] > saturation / 2) ++front;
    EXPECT_NEAR((static_cast<double>(front) + 0.5) / 2000 / 0.5, shock.speed, 0.005) << "a = " << shock.ratio;
  }
}

TEST(BuckleyLeverett, P17_SteepestSlope) {
  EXPECT_NEAR(FractionalFlow{1}.steepest(), 2.0, 1e-9);
  EXPECT_NEAR(FractionalFlow{0.5}.steepest(), 2.0808, 5e-5);
  EXPECT_NEAR(FractionalFlow{2}.steepest(), 2.0808, 5e-5);
}

TEST(BuckleyLeverett, P17_SlopeIsTheDerivative) {
  for (const double ratio : {0.5, 1.0, 2.0}) {
    const FractionalFlow flow{ratio};
    for (double s = 0.05; s < 1; s += 0.05)
      EXPECT_NEAR(flow.slope(s), (flow.flow(s + 1e-6) - flow.flow(s - 1e-6)) / 2e-6, 1e-8);
  }
}

TEST(BuckleyLeverett, P17_ErrorsOfTheSpecification) {
  EXPECT_NEAR(error_at_centres({1}, 100, 125) / 0.01357, 1, 0.01);
  EXPECT_NEAR(error_at_centres({1}, 400, 500) / 0.00444, 1, 0.01);
}

TEST(BuckleyLeverett, P17_MassIsConservedBeforeBreakthrough) {
  for (const Shock& shock : kShocks) {
    const FractionalFlow flow{shock.ratio};
    std::vector<double> state(400, 0.0);
    double left = 0;
    int steps = 0;
    for (; steps < 400; ++steps) left += upwind_step(flow, 0.4, state);
    // The inflow equals 160 cells; the shock has not reached the end.
    EXPECT_LT(left, 1e-14);
    const double mass = std::accumulate(state.begin(), state.end(), 0.0) / 400;
    EXPECT_NEAR(mass, 0.4 * steps / 400, 1e-14) << "a = " << shock.ratio;
  }
}

TEST(BuckleyLeverett, P17_TheComponentMakesTheSolversStates) {
  const auto made = make_simulator<BuckleyLeverett>(
      "cells = 100\ntime = 0.5\nsnapshots = 1\nratio_low = 1\nratio_high = 1\n"
      "numbers = 'f64'\n");
  const Sample sample(*made.simulator, {1, 0});
  const std::vector<double> expected = driven({1}, 100, 125);
  EXPECT_EQ(sample.values<double>("viscosity_ratio"), std::vector<double>{1.0});
  EXPECT_EQ(sample.values<double>("initial"), std::vector<double>(100, 0.0));
  const std::vector<double> found = sample.values<double>("saturation");
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

TEST(BuckleyLeverett, DrawsStayInTheirRange) {
  const auto made =
      make_simulator<BuckleyLeverett>("cells = 20\nsnapshots = 2\ntime = 0.1\ninitial = 'random'\n");
  double least = 10, most = 0;
  for (std::int64_t index = 0; index < 200; ++index) {
    const Sample sample(*made.simulator, {3, index});
    const float ratio = sample.values<float>("viscosity_ratio")[0];
    least = std::min<double>(least, ratio);
    most = std::max<double>(most, ratio);
    for (const float share : sample.values<float>("initial")) EXPECT_TRUE(share > 0 && share < 0.3f) << share;
    for (const float share : sample.values<float>("saturation"))
      EXPECT_TRUE(share >= 0 && share <= 1) << share;
  }
  EXPECT_TRUE(least >= 0.5 && least < 0.52) << least;
  EXPECT_TRUE(most <= 2 && most > 1.9) << most;
}

TEST(BuckleyLeverett, BrokenCflEndsTheTask) {
  const auto made =
      make_simulator<BuckleyLeverett>("cells = 100\nstep_ratio = 0.6\nratio_low = 1\nratio_high = 1\n");
  try {
    const Sample sample(*made.simulator, {1, 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun);
    EXPECT_THAT(error.what(),
                HasSubstr("step 0 of 90: the CFL number dt / h x max f' = 0.5556 x 2 = 1.111 exceeds 1"));
    EXPECT_THAT(error.what(), HasSubstr("choose step_ratio <= 0.5"));
  }
}

TEST(BuckleyLeverett, RatiosInTheWrongOrderAreRefused) {
  try {
    make_simulator<BuckleyLeverett>("ratio_low = 2\nratio_high = 1\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("ratio_low is 2 and ratio_high 1"));
  }
}

}  // namespace
}  // namespace tenon::porous
