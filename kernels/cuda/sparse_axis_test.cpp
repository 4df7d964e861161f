// Weighted sums of lines on the host launcher, over several grids and in either order of blocks and threads:
// every element is one chain in the order of its terms.
#include "testing.hpp"

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/sparse_axis.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace tenon::kernels::cuda::sparse_axis_test {
namespace {

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};
constexpr Grid kGrids[] = {{1, 32, 0}, {3, 64, 0}, {7, 256, 0}};

struct Lines {
  std::int64_t columns;
  std::vector<std::int32_t> offsets, column_of;
};
const Lines kCases[] = {
    // Interpolation; rows of nothing and of a column twice; rows of many terms in any order.
    {3, {0, 1, 3, 5, 6}, {0, 0, 1, 1, 2, 2}},
    {4, {0, 0, 2, 3, 3}, {3, 3, 0}},
    {5, {0, 7, 9, 14}, {4, 0, 2, 2, 1, 3, 0, 1, 4, 3, 2, 1, 0, 4}},
    {2, {0}, {}},
};
constexpr std::pair<std::int64_t, std::int64_t> kSides[] = {{1, 1}, {5, 1}, {3, 7}, {2, 130}, {31, 67}};

template <class T>
struct CudaSparseAxisOp : ::testing::Test {};
using Arithmetic = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaSparseAxisOp, Arithmetic);

TYPED_TEST(CudaSparseAxisOp, IsOneChainPerElement) {
  using T = TypeParam;
  for (const Lines& c : kCases)
    for (const auto& [outer, inner] : kSides) {
      const std::int64_t rows = static_cast<std::int64_t>(c.offsets.size()) - 1;
      const auto x = testing::random_values<T>(static_cast<std::size_t>(outer * c.columns * inner), 1),
                 weights = testing::random_values<T>(c.column_of.size(), 2);
      std::vector<T> expected;
      for (std::int64_t o = 0; o < outer; ++o)
        for (std::size_t r = 0; r + 1 < c.offsets.size(); ++r)
          for (std::int64_t i = 0; i < inner; ++i) {
            T sum = 0;
            for (std::size_t e = c.offsets[r]; e < static_cast<std::size_t>(c.offsets[r + 1]); ++e)
              sum += weights[e] * x[(o * c.columns + c.column_of[e]) * inner + i];
            expected.push_back(sum);
          }
      for (const Grid& grid : kGrids)
        for (const LaunchOrder order : kOrders) {
          std::vector<T> y(expected.size(), T{7});
          launch_on_host(grid,
                         SumLines<T>{c.offsets.data(), c.column_of.data(), weights.data(), x.data(), y.data(),
                                     outer, c.columns, rows, inner},
                         order);
          EXPECT_TRUE(testing::same_bits(y, expected));
        }
    }
}

}  // namespace
}  // namespace tenon::kernels::cuda::sparse_axis_test
