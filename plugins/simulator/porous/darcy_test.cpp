// Property 17, check 8.2: the values at the centre, their order; the system that NumPy solves; the random
// field.
#include "darcy.hpp"
#include "five_point.hpp"
#include "reference/recorded.hpp"

#include <tenon/testing/samples.hpp>

#include <cmath>

namespace tenon::porous {
namespace {

using ::testing::HasSubstr;
using testing::make_simulator;
using testing::Recorded;
using testing::Sample;

double centre(std::size_t intervals) {
  const std::size_t n = intervals + 1;
  return solve_darcy(n, std::vector<double>(n * n, 1.0))[intervals / 2 * n + intervals / 2];
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

TEST(Darcy, P17_CentreOfTheUnitCoefficient) {
  EXPECT_NEAR(centre(16), 0.0734457666, 5e-11);
  EXPECT_NEAR(centre(32), 0.0736147374, 5e-11);
  EXPECT_NEAR(centre(128), 0.0736678105, 5e-11);
  constexpr double kContinuum = 0.0736713513;
  const double order = std::log2((kContinuum - centre(16)) / (kContinuum - centre(32)));
  EXPECT_NEAR(order, 2, 0.05);
}

TEST(Darcy, P17_SolutionOfNumPy) {
  const Recorded recorded("simulations");
  const std::vector<double> u = solve_darcy(17, recorded.values("darcy.a"));
  EXPECT_LE(largest_difference(u, recorded.values("darcy.u")), 1e-12 * 0.0135);
}

TEST(Darcy, P17_RandomFieldOfNumPy) {
  const Recorded recorded("simulations");
  const std::vector<double> normals = recorded.values("field.normals");
  const CosineField nodes{.points = 17, .at = CosineField::Points::kNodes};
  const CosineField centres{.points = 17, .at = CosineField::Points::kCentres};
  EXPECT_LE(largest_difference(nodes.from_normals(normals), recorded.values("field.nodes")), 1e-14);
  EXPECT_LE(largest_difference(centres.from_normals(normals), recorded.values("field.centres")), 1e-14);
}

TEST(Darcy, FieldHasItsDeviation) {
  const CosineField field{.points = 24, .at = CosineField::Points::kCentres, .alpha = 2, .tau = 10};
  double sum = 0;
  constexpr int kDraws = 400;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    for (const double value : field.draw(random_key(1, "test"), i)) sum += value * value;
  }
  // 400 fields with some tens of effective points each: two per cent.
  EXPECT_NEAR(std::sqrt(sum / (kDraws * 24 * 24)) / field.deviation(), 1, 0.02);
}

TEST(Darcy, TaskStoresEveryFifthNode) {
  const auto made = make_simulator<Darcy>("grid = 41\nevery = 5\nnumbers = 'f64'\n");
  const auto whole = make_simulator<Darcy>("grid = 41\nevery = 1\nnumbers = 'f64'\n");
  const Sample few(*made.simulator, {2, 7}), all(*whole.simulator, {2, 7});
  for (const char* field : {"a", "u"}) {
    const std::vector<double> stored = few.values<double>(field), every = all.values<double>(field);
    ASSERT_EQ(stored.size(), 81u);
    for (std::size_t i = 0; i < 9; ++i) {
      for (std::size_t j = 0; j < 9; ++j) EXPECT_EQ(stored[i * 9 + j], every[5 * i * 41 + 5 * j]);
    }
  }
  const std::vector<double> a = all.values<double>("a"), u = all.values<double>("u");
  EXPECT_TRUE(std::all_of(a.begin(), a.end(), [](double value) { return value == 3 || value == 12; }));
  EXPECT_LE(largest_difference(u, solve_darcy(41, a)), 0);
  EXPECT_EQ(u[0], 0);
  EXPECT_GT(*std::max_element(u.begin(), u.end()), 0.0736 / 12);
  EXPECT_LT(*std::max_element(u.begin(), u.end()), 0.0737 / 3);
}

TEST(Darcy, EveryMustDivide) {
  try {
    make_simulator<Darcy>("grid = 42\nevery = 5\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("every is 5 and grid 42; expected a divisor of grid - 1 = 41"));
  }
}

TEST(FivePoint, SolvesToItsTolerance) {
  for (const auto& [nx, ny] :
       {std::pair<std::size_t, std::size_t>{1, 1}, {1, 9}, {9, 1}, {13, 7}, {40, 41}}) {
    FivePoint matrix(nx, ny);
    std::vector<double> b(matrix.size()), x(matrix.size(), 0.0), product(matrix.size());
    const RandomKey key = random_key(1, "five_point");
    for (std::size_t at = 0; at < matrix.size(); ++at) {
      b[at] = random_normal(key, 0, at);
      matrix.diagonal[at] += 0.1;
      if (at + ny < matrix.size()) {
        matrix.to_next_x[at] = std::exp(3 * random_normal(key, 1, at));
        matrix.diagonal[at] += matrix.to_next_x[at];
        matrix.diagonal[at + ny] += matrix.to_next_x[at];
      }
      if (at % ny + 1 < ny) {
        matrix.to_next_y[at] = std::exp(3 * random_normal(key, 2, at));
        matrix.diagonal[at] += matrix.to_next_y[at];
        matrix.diagonal[at + 1] += matrix.to_next_y[at];
      }
    }
    EXPECT_GE(FivePointSolver(nx, ny).solve(matrix, b, 1e-10, false, x), 0);
    matrix.multiply(x, product);
    double error = 0, size = 0;
    for (std::size_t at = 0; at < b.size(); ++at) {
      error += (product[at] - b[at]) * (product[at] - b[at]);
      size += b[at] * b[at];
    }
    EXPECT_LE(std::sqrt(error / size), 2e-10) << nx << " x " << ny;
  }
}

TEST(FivePoint, SaysThatItDidNotConverge) {
  FivePoint matrix(2, 2);
  std::fill(matrix.diagonal.begin(), matrix.diagonal.end(), std::nan(""));
  std::vector<double> x(4, 0.0);
  EXPECT_EQ(FivePointSolver(2, 2).solve(matrix, std::vector<double>(4, 1.0), 1e-10, false, x), -1);
}

}  // namespace
}  // namespace tenon::porous
