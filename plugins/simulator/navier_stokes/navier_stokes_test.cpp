// Property 17, check 8.1: exact decay, exact forcing, conservation; and reference states from NumPy.
#include "navier_stokes.hpp"
#include "reference/recorded.hpp"

#include <tenon/testing/samples.hpp>

#include <cmath>
#include <numbers>

namespace tenon::navier_stokes {
namespace {

using ::testing::HasSubstr;
using testing::make_simulator;
using testing::Recorded;
using testing::Sample;

constexpr double kPi = std::numbers::pi;

std::vector<double> wave(std::size_t n, double of_sine, double of_cosine) {
  std::vector<double> values(n * n);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double angle = 2 * kPi * static_cast<double>(i / n + i % n) / static_cast<double>(n);
    values[i] = of_sine * std::sin(angle) + of_cosine * std::cos(angle);
  }
  return values;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

std::vector<double> advanced(const Flow& flow, const std::vector<double>& forcing,
                             const std::vector<double>& from, int steps) {
  VorticitySolver solver(flow, forcing);
  solver.set(from);
  for (int step = 0; step < steps; ++step) solver.advance();
  std::vector<double> state(from.size());
  solver.vorticity(state);
  return state;
}

TEST(NavierStokes, P17_CheckA_OneShellDecaysExactly) {
  const struct {
    double step;
    int steps;
    double factor, tolerance;
  } cases[] = {{1e-3, 1000, 0.9240798112586, 1e-11}};
  for (const auto& [step, steps, factor, tolerance] : cases) {
    const Flow flow{32, 1e-3, step};
    const std::vector<double> zero(32 * 32, 0.0), from = wave(32, 0.3, 0.8);
    std::vector<double> expected = from;
    for (double& value : expected) value *= factor;
    const std::vector<double> state = advanced(flow, zero, from, steps);
    EXPECT_LE(largest_difference(state, expected), tolerance * largest(expected));
  }
}

TEST(NavierStokes, P17_CheckA_FactorsOfTheSpecification) {
  const auto factor = [](double step, double steps) {
    const double q = step * 1e-3 * 8 * kPi * kPi / 2;
    return std::pow((1 - q) / (1 + q), steps);
  };
  EXPECT_NEAR(factor(1e-3, 1000), 0.9240798112586, 1e-12);
  EXPECT_NEAR(factor(1e-4, 500000), 0.0192963, 5e-8);
}

TEST(NavierStokes, P17_CheckB_ForcingFromRest) {
  const std::size_t n = 32;
  const double nu = 1e-3, step = 1e-3, q = step * nu * 8 * kPi * kPi / 2;
  const std::vector<double> forcing = wave(n, 0.1, 0.1), zero(n * n, 0.0);
  for (const int steps : {1, 10, 1000}) {
    const double share = (1 - std::pow((1 - q) / (1 + q), steps)) / (8 * kPi * kPi * nu);
    std::vector<double> expected = forcing;
    for (double& value : expected) value *= share;
    const std::vector<double> state = advanced({n, nu, step}, forcing, zero, steps);
    EXPECT_LE(largest_difference(state, expected), 1e-11 * largest(expected)) << steps;
  }
  // Peak values of the formula that the states above follow: t -> infinity, and T = 50.
  const double peak = 0.1 * std::numbers::sqrt2 / (8 * kPi * kPi * nu);
  EXPECT_NEAR(peak, 1.7911, 5e-5);
  EXPECT_NEAR(peak * (1 - std::pow((1 - q) / (1 + q), 50000)), 1.75656, 1e-5);
}

TEST(NavierStokes, P17_CheckC_DriftHalvesWithTheStep) {
  const std::size_t n = 32;
  const auto drift = [&](double step, int steps) {
    VorticitySolver solver({n, 0, step}, std::vector<double>(n * n, 0.0));
    std::vector<double> values(n * n), u(n * n), v(n * n);
    RandomVorticity{n, 2.5, 7}.draw({5, 0}, values);
    for (double& value : values) value *= 5;
    solver.set(values);
    solver.dealias();
    const auto measure = [&] {
      solver.vorticity(values);
      solver.velocity(u, v);
      double energy = 0, enstrophy = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        energy += u[i] * u[i] + v[i] * v[i];
        enstrophy += values[i] * values[i];
      }
      return std::pair(energy, enstrophy);
    };
    const auto before = measure();
    for (int i = 0; i < steps; ++i) solver.advance();
    const auto after = measure();
    return std::pair(std::abs(after.first / before.first - 1), std::abs(after.second / before.second - 1));
  };
  const auto coarse = drift(2e-3, 500), fine = drift(1e-3, 1000);
  EXPECT_GT(coarse.first, 1e-9);
  EXPECT_TRUE(coarse.first / fine.first > 1.9 && coarse.first / fine.first < 2.1)
      << coarse.first / fine.first;
  EXPECT_TRUE(coarse.second / fine.second > 1.9 && coarse.second / fine.second < 2.1)
      << coarse.second / fine.second;
}

TEST(NavierStokes, P17_StatesOfNumPy) {
  const Recorded recorded("simulations");
  const std::size_t n = 16;
  const std::vector<double> from = recorded.values("ns.vorticity.0");
  for (const int steps : {1, 10, 100}) {
    const std::vector<double> expected = recorded.values("ns.vorticity." + std::to_string(steps));
    const std::vector<double> state = advanced({n, 1e-3, 1e-2}, wave(n, 0.1, 0.1), from, steps);
    EXPECT_LE(largest_difference(state, expected), 1e-12 * largest(expected)) << steps;
  }
  VorticitySolver solver({n, 1e-3, 1e-2}, wave(n, 0.1, 0.1));
  solver.set(from);
  std::vector<double> u(n * n), v(n * n);
  solver.velocity(u, v);
  EXPECT_LE(largest_difference(u, recorded.values("ns.u")), 1e-14);
  EXPECT_LE(largest_difference(v, recorded.values("ns.v")), 1e-14);
}

TEST(NavierStokes, P17_RandomFieldOfNumPy) {
  const Recorded recorded("simulations");
  std::vector<double> field(16 * 16);
  RandomVorticity{16, 2.5, 7}.from_normals(recorded.values("ns.normals"), field);
  EXPECT_LE(largest_difference(field, recorded.values("ns.random")), 1e-14);
}

TEST(NavierStokes, TaskIsTheSolversStates) {
  const auto made = make_simulator<NavierStokes>(
      "grid = 16\ntime = 0.1\nstep = 1e-2\nsnapshots = 2\nnumbers = 'f64'\ninitial = 'wave'\nforcing = 0\n");
  const Sample sample(*made.simulator, {1, 0});
  const std::vector<double> start = wave(16, 0, 1), zero(256, 0.0);
  EXPECT_LE(largest_difference(sample.values<double>("initial"), start), 1e-15);
  const std::vector<double> states = sample.values<double>("vorticity");
  EXPECT_LE(
      largest_difference({states.begin(), states.begin() + 256}, advanced({16, 1e-3, 1e-2}, zero, start, 5)),
      1e-14);
  EXPECT_LE(
      largest_difference({states.begin() + 256, states.end()}, advanced({16, 1e-3, 1e-2}, zero, start, 10)),
      1e-14);
}

TEST(NavierStokes, SamplesDifferByIndexAndSeedAlone) {
  const auto made = make_simulator<NavierStokes>("grid = 16\ntime = 0.1\nstep = 1e-2\nsnapshots = 1\n");
  const auto again = make_simulator<NavierStokes>("grid = 16\ntime = 0.1\nstep = 1e-2\nsnapshots = 1\n");
  const auto state = [](const auto& simulator, const SimulationTask& task) {
    return Sample(*simulator.simulator, task).template values<float>("vorticity");
  };
  const std::vector<float> first = state(made, {1, 0});
  EXPECT_NE(state(made, {1, 1}), first);
  EXPECT_NE(state(made, {2, 0}), first);
  EXPECT_EQ(state(made, {1, 0}), first);
  EXPECT_EQ(state(again, {1, 0}), first);
}

std::string failure(const std::string& toml) {
  try {
    const auto made = make_simulator<NavierStokes>(toml);
    const Sample sample(*made.simulator, {1, 0});
  } catch (const Error& error) {
    return error.what();
  }
  return "ran";
}

TEST(NavierStokes, BrokenCflEndsTheTask) {
  EXPECT_THAT(failure("grid = 16\ntime = 100\nstep = 10\nsnapshots = 1\n"),
              HasSubstr("step 0: the CFL number dt max(|u| + |v|) n = 10 x"));
  EXPECT_THAT(failure("grid = 16\ntime = 100\nstep = 0.5\nsnapshots = 1\nforcing = 1e6\n"),
              HasSubstr("step 1: the CFL"));
}

TEST(NavierStokes, NotANumberIsNoticed) {
  VorticitySolver solver({16, 1e-3, 1e-3}, std::vector<double>(256, 0.0));
  std::vector<double> broken(256, 0.0);
  broken[7] = std::nan("");
  solver.set(broken);
  try {
    solver.advance();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 0: the velocity is"));
    EXPECT_THAT(error.what(), HasSubstr("nan at point (0, 0)"));
  }
}

TEST(NavierStokes, FirstSnapshotsMayBeAnInput) {
  const std::string toml = "grid = 16\ntime = 0.3\nstep = 1e-2\nsnapshots = 3\n";
  const auto whole = make_simulator<NavierStokes>(toml),
             cut = make_simulator<NavierStokes>(toml + "past = 2\n");
  const Sample all(*whole.simulator, {1, 4}), parts(*cut.simulator, {1, 4});
  std::vector<float> states = parts.values<float>("past");
  EXPECT_EQ(states.size(), 2u * 256);
  const std::vector<float> rest = parts.values<float>("vorticity");
  states.insert(states.end(), rest.begin(), rest.end());
  EXPECT_EQ(states, all.values<float>("vorticity"));
  for (const SimulatedField& field : cut->fields()) EXPECT_EQ(field.target, field.name == "vorticity");
  EXPECT_THAT(failure(toml + "past = 3\n"), HasSubstr("past is 3 of 3 snapshots; expected fewer"));
}

TEST(NavierStokes, OddGridIsRefused) {
  EXPECT_THAT(failure("grid = 15\n"), HasSubstr("grid is 15; expected an even number"));
}

TEST(NavierStokes, StopsWhenItsTimeIsOver) {
  const auto made = make_simulator<NavierStokes>("grid = 16\ntime = 1\n");
  testing::Arrays shared(made.simulator->shared()), fields(made.simulator->fields());
  made.simulator->share(1, shared.views);
  testing::CountingWatch watch(10);
  EXPECT_THROW(made.simulator->run({1, 0}, shared.views, fields.views, watch), DeadlineError);
}

}  // namespace
}  // namespace tenon::navier_stokes
