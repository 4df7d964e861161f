// Updates on the host launcher: the bits of the reference, for any grid and order of threads.
#include "testing.hpp"

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/update.hpp>
#include <tenon/kernels/reference/update.hpp>

namespace tenon::kernels::cuda::update_test {
namespace {

using testing::random_values;
using testing::same_bits;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};
constexpr Grid kGrids[] = {{1, 256}, {3, 64}, {7, 256}};

/// Weights, gradients and state of one arena.
template <class T>
struct Arena {
  std::vector<T> w, g, m, v;
  explicit Arena(std::size_t n)
      : w(random_values<T>(n, 1)),
        g(random_values<T>(n, 2)),
        m(random_values<T>(n, 3)),
        v(random_values<T>(n, 4, 0.0, 1.0)) {}
  std::int64_t size() const { return static_cast<std::int64_t>(w.size()); }
};

template <class T>
struct CudaUpdateTest : ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaUpdateTest, Reals);

constexpr std::size_t kSizes[] = {0, 1, 255, 1000, 2001};

TYPED_TEST(CudaUpdateTest, AdamwGivesTheBitsOfTheReference) {
  using T = TypeParam;
  for (const std::size_t n : kSizes)
    for (const std::int64_t step : {1, 7}) {
      const auto c = adamw_coefficients<T>(1e-3, 0.9, 0.99, 1e-8, 0.1, step, 0.37);
      Arena<T> expected(n);
      reference::adamw(c, expected.g.data(), expected.w.data(), expected.m.data(), expected.v.data(), nullptr,
                       expected.size());
      for (const Grid& grid : kGrids)
        for (const LaunchOrder order : kOrders) {
          Arena<T> own(n);
          launch_on_host(
              grid, AdamwUpdate<T>{c, own.g.data(), own.w.data(), own.m.data(), own.v.data(), own.size()},
              order);
          EXPECT_TRUE(same_bits(own.w, expected.w) && same_bits(own.m, expected.m) &&
                      same_bits(own.v, expected.v))
              << n << " elements, step " << step << ", " << grid.blocks << " blocks";
        }
    }
}

TYPED_TEST(CudaUpdateTest, SgdGivesTheBitsOfTheReference) {
  using T = TypeParam;
  const SgdCoefficients<T> cases[] = {
      {T(0.37), T(0.1), T(0), T(0), T(1), false, false},
      {T(0.37), T(0.1), T(0.01), T(0), T(1), false, false},
      {T(0.37), T(0.1), T(0.01), T(0.9), T(1), false, true},
      {T(0.37), T(0.1), T(0.01), T(0.9), T(0.7), false, false},
      {T(0.37), T(0.1), T(0.01), T(0.9), T(1), true, false},
  };
  for (const std::size_t n : kSizes)
    for (const auto& c : cases) {
      Arena<T> expected(n);
      reference::sgd(c, expected.g.data(), expected.w.data(), c.momentum == 0 ? nullptr : expected.m.data(),
                     nullptr, expected.size());
      for (const Grid& grid : kGrids)
        for (const LaunchOrder order : kOrders) {
          Arena<T> own(n);
          launch_on_host(grid,
                         SgdUpdate<T>{c, own.g.data(), own.w.data(), c.momentum == 0 ? nullptr : own.m.data(),
                                      own.size()},
                         order);
          EXPECT_TRUE(same_bits(own.w, expected.w) && same_bits(own.m, expected.m)) << n << " elements";
        }
    }
}

}  // namespace
}  // namespace tenon::kernels::cuda::update_test
