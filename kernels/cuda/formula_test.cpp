// Formulas on the host launcher: the bits of an equivalent C++ loop, for any grid and order of threads, and
// sums within a bound, in one order for each grid.
#include "testing.hpp"

#include <tenon/kernels/cuda/formula.hpp>

namespace tenon::kernels::cuda::formula_test {
namespace {

using testing::random_values;
using testing::same_bits;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};
constexpr std::pair<int, int> kGrids[] = {{1, 256}, {3, 64}, {7, 256}};
constexpr std::size_t kSizes[] = {0, 1, 255, 1000, 2001};
constexpr std::uint8_t kFirst = 16;  ///< value that the first step makes

template <class T>
EvaluateFormula<T> formula_of(std::initializer_list<Step> steps, std::initializer_list<T> constants,
                              int values, int sums) {
  EvaluateFormula<T> body{};
  for (const Step& step : steps) body.steps[body.step_count++] = step;
  for (const T constant : constants) body.constants[body.constant_count++] = constant;
  body.value_count = values;
  body.sum_count = sums;
  return body;
}

template <class T>
void launch_over(EvaluateFormula<T> body, std::vector<std::vector<T>>& tensors, std::pair<int, int> shape,
                 LaunchOrder order, std::vector<double>& partial) {
  for (std::size_t i = 0; i < tensors.size(); ++i) body.tensors[i] = tensors[i].data();
  body.n = static_cast<std::int64_t>(tensors[0].size());
  const auto [blocks, threads] = shape;
  partial.assign(blocks * body.sum_count, -1.0);
  body.partial = partial.data();
  launch_on_host(body.grid(blocks, threads), body, order);
}

template <class T>
struct CudaFormulaTest : ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaFormulaTest, Reals);

// Weights 0, gradients 1, accumulators 2, a third of which were never used.
TYPED_TEST(CudaFormulaTest, AnUpdateHasTheBitsOfItsLoop) {
  using T = TypeParam;
  const T scale(0.37), lr(0.1), decay(0.01), eps(1e-10), initial(0.5);
  constexpr std::uint8_t w = kFirst, g = kFirst + 1, s = kFirst + 2, t = kFirst + 3, u = kFirst + 4,
                         v = kFirst + 5;
  const auto body = formula_of<T>({{StepOp::kLoad, w, 0, 0, 0},
                                   {StepOp::kLoad, g, 1, 0, 0},
                                   {StepOp::kLoad, s, 2, 0, 0},
                                   {StepOp::kMultiply, t, g, 0, 0},
                                   {StepOp::kMultiply, u, 2, w, 0},
                                   {StepOp::kAdd, g, t, u, 0},
                                   {StepOp::kSelect, t, s, s, 4},
                                   {StepOp::kMultiply, u, g, g, 0},
                                   {StepOp::kAdd, s, t, u, 0},
                                   {StepOp::kStore, 2, s, 0, 0},
                                   {StepOp::kLoad, v, 2, 0, 0},
                                   {StepOp::kRoot, t, v, v, 0},
                                   {StepOp::kAdd, t, t, 3, 0},
                                   {StepOp::kDivide, u, g, t, 0},
                                   {StepOp::kMultiply, u, 1, u, 0},
                                   {StepOp::kSubtract, w, w, u, 0},
                                   {StepOp::kStore, 0, w, 0, 0}},
                                  {scale, lr, decay, eps, initial}, 6, 0);
  for (const std::size_t n : kSizes) {
    std::vector<std::vector<T>> start{random_values<T>(n, 1), random_values<T>(n, 2),
                                      random_values<T>(n, 3, 0.0, 1.0)};
    for (std::size_t i = 0; i < n; i += 3) start[2][i] = 0;
    auto expected = start;
    for (std::size_t i = 0; i < n; ++i) {
      const T gradient = expected[1][i] * scale + decay * expected[0][i];
      expected[2][i] = (expected[2][i] == 0 ? initial : expected[2][i]) + gradient * gradient;
      expected[0][i] -= lr * (gradient / (std::sqrt(expected[2][i]) + eps));
    }
    for (const auto& grid : kGrids)
      for (const LaunchOrder order : kOrders) {
        auto own = start;
        std::vector<double> none;
        launch_over(body, own, grid, order, none);
        EXPECT_TRUE(same_bits(own[0], expected[0]) && same_bits(own[1], expected[1]) &&
                    same_bits(own[2], expected[2]))
            << n << " elements, " << grid.first << " blocks";
      }
  }
}

TYPED_TEST(CudaFormulaTest, ChoicesTakeNaNsAsTheLanguageDoes) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  // y = x < 2 ? x : 5, z = x ? 5 : 2
  constexpr std::uint8_t x = kFirst, y = kFirst + 1;
  const auto body = formula_of<T>({{StepOp::kLoad, x, 0, 0, 0},
                                   {StepOp::kLess, y, x, 0, 0},
                                   {StepOp::kSelect, y, y, x, 1},
                                   {StepOp::kStore, 1, y, 0, 0},
                                   {StepOp::kSelect, y, x, 1, 0},
                                   {StepOp::kStore, 2, y, 0, 0}},
                                  {T(2), T(5)}, 2, 0);
  std::vector<std::vector<T>> tensors(3, {T(1), T(2), T(-3), nan, T(0), -T(0)});
  std::vector<double> none;
  launch_over(body, tensors, {1, 64}, kOrders[0], none);
  EXPECT_EQ(tensors[1], (std::vector<T>{T(1), T(5), T(-3), T(5), T(0), T(0)}));
  EXPECT_EQ(tensors[2], (std::vector<T>{T(5), T(5), T(5), T(5), T(2), T(2)}));
}

// Terms below 1 of one sign: a chain of n roundings errs by at most n 2^-53 of the sum, whatever its order.
TYPED_TEST(CudaFormulaTest, SumsAreNearAndOfOneOrder) {
  using T = TypeParam;
  constexpr std::uint8_t x = kFirst, y = kFirst + 1;
  const auto body = formula_of<T>({{StepOp::kLoad, x, 0, 0, 0},
                                   {StepOp::kLoad, y, 1, 0, 0},
                                   {StepOp::kSum, 0, x, x, 0},
                                   {StepOp::kSum, 1, y, 0, 0}},
                                  {T(1)}, 2, 2);
  for (const std::size_t n : kSizes) {
    std::vector<std::vector<T>> tensors{random_values<T>(n, 1), random_values<T>(n, 2, 0.0, 1.0)};
    double exact[2] = {0, 0};
    for (const T value : tensors[0]) exact[0] += static_cast<double>(value) * static_cast<double>(value);
    for (const T value : tensors[1]) exact[1] += static_cast<double>(value);
    for (const auto& grid : kGrids) {
      std::vector<double> ascending, descending;
      launch_over(body, tensors, grid, kOrders[0], ascending);
      launch_over(body, tensors, grid, kOrders[1], descending);
      EXPECT_EQ(ascending, descending);
      for (int s = 0; s < 2; ++s) {
        double sum = 0;
        for (int block = 0; block < grid.first; ++block) sum += ascending[s * grid.first + block];
        EXPECT_NEAR(sum, exact[s], 2 * static_cast<double>(n) * 0x1p-53 * exact[s]) << n;
      }
    }
  }
}

TEST(CudaFormulaGrid, DependsOnTheElementsAlone) {
  EXPECT_EQ(EvaluateFormula<float>::blocks(1), 1);
  EXPECT_EQ(EvaluateFormula<float>::blocks(2048), 1);
  EXPECT_EQ(EvaluateFormula<float>::blocks(2049), 2);
  EXPECT_EQ(EvaluateFormula<float>::blocks(std::int64_t{1} << 30), 132 * 16);
}

}  // namespace
}  // namespace tenon::kernels::cuda::formula_test
