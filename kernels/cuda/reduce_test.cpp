// Reductions on CUDA: the bits of the reference where sums are split alike, the smallest index, and sums over
// rows, sets and columns within a bound, in both launch orders.
#include "testing.hpp"

#include <tenon/kernels/cuda/part_norm.hpp>
#include <tenon/kernels/cuda/reduce.hpp>
#include <tenon/kernels/reference/reduce.hpp>

namespace tenon::kernels::cuda::reduce_test {
namespace {

using namespace kernels::testing;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

template <class S>
struct CudaReduce : ::testing::Test {};
TYPED_TEST_SUITE(CudaReduce, Storages);

TYPED_TEST(CudaReduce, BlockSumsAreTheReferences) {
  using S = TypeParam;
  for (const std::int64_t n : {1, 15, 4096, 4097, 40000, 100003}) {
    const auto x = random_values<S>(static_cast<std::size_t>(n), 1);
    std::vector<double> sums(reduce_blocks(n)), squares = sums;
    reference::block_sums(x.data(), n, sums.data());
    reference::block_sums_of_squares(x.data(), n, squares.data());
    for (const LaunchOrder order : kOrders) {
      std::vector<double> found(sums.size());
      launch_on_host(BlockSums<S, false>::grid(n), BlockSums<S, false>{x.data(), n, found.data()}, order);
      EXPECT_EQ(found, sums) << n;
      launch_on_host(BlockSums<S, true>::grid(n), BlockSums<S, true>{x.data(), n, found.data()}, order);
      EXPECT_EQ(found, squares) << n;
    }
  }
}

template <class Value, class Join>
std::int64_t joined(std::int64_t n, std::int64_t none, Value value, Join join, std::int64_t blocks,
                    LaunchOrder order) {
  std::vector<std::int64_t> partial(blocks);
  launch_on_host(Grid{blocks, kThreads, kThreads * sizeof(std::int64_t)},
                 JoinIntegers<Value, Join>{n, none, value, join, partial.data()}, order);
  for (const std::int64_t one : partial) none = join(none, one);
  return none;
}

TYPED_TEST(CudaReduce, FindsTheFirstAndTheLargest) {
  using S = TypeParam;
  constexpr std::int64_t kN = 3001;
  const float infinity = std::numeric_limits<float>::infinity();
  auto x = random_values<S>(kN, 2);
  x[1700] = reference::put<S>(-3);
  const auto first = [&](std::int64_t blocks, LaunchOrder order) {
    return joined(kN, kN, NotFinite<S>{x.data(), kN}, Smaller{}, blocks, order);
  };
  const auto largest = [&](std::int64_t blocks, LaunchOrder order) {
    const std::int64_t bits = joined(kN, 0, Magnitude<S>{x.data()}, Larger{}, blocks, order);
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  };
  for (const LaunchOrder order : kOrders)
    for (const std::int64_t blocks : {1, 3, 12}) {
      x[2900] = x[411] = reference::put<S>(0.5f);
      EXPECT_EQ(first(blocks, order), kN);
      EXPECT_EQ(largest(blocks, order), 3);
      x[2900] = reference::put<S>(-infinity);
      EXPECT_EQ(first(blocks, order), 2900);
      EXPECT_EQ(largest(blocks, order), infinity);
      x[411] = reference::put<S>(std::numeric_limits<float>::quiet_NaN());
      EXPECT_EQ(first(blocks, order), 411);
      EXPECT_TRUE(std::isnan(largest(blocks, order)));
    }
  const std::int32_t ids[] = {0, 4, -1, 5, 2};
  EXPECT_EQ(joined(5, 5, OutOfRange{ids, 0, 5, 5}, Smaller{}, 2, kOrders[0]), 2);
  EXPECT_EQ(joined(5, 5, OutOfRange{ids, -1, 5, 5}, Smaller{}, 2, kOrders[1]), 3);
  EXPECT_EQ(joined(5, 5, OutOfRange{ids, -1, 6, 5}, Smaller{}, 2, kOrders[1]), 5);
}

TYPED_TEST(CudaReduce, ColumnsAreSummedInSlabs) {
  using S = TypeParam;
  using A = Arith<S>;
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, std::pair{7, 33}, std::pair{300, 70}, std::pair{5000, 3}}) {
    const auto x = random_values<S>(static_cast<std::size_t>(rows * columns), 3);
    std::vector<double> exact(columns, 1.0);
    for (int i = 0; i < rows * columns; ++i) exact[i % columns] += static_cast<double>(reference::get(x[i]));
    const Slabs slabs = slabs_of_rows(rows, columns);
    std::vector<A> first;
    for (const LaunchOrder order : kOrders) {
      std::vector<A> out(columns, 1);
      std::vector<Sums<A, 1>> partial(slabs.count * columns);
      const ColumnSums<A, 1, RowTerms<S>> body{
          rows, columns, slabs, {columns, x.data()}, partial.data(), {{out.data()}, true}};
      launch_on_host(body.mesh(), body, order);
      if (slabs.count > 1)
        launch_on_host(grid_for(columns),
                       ColumnTotals<A, 1>{columns, slabs.count, partial.data(), body.outputs}, order);
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first)) << rows << " x " << columns;
      // A sum of n terms below 1 errs by at most n roundings of partial sums below n.
      const double n = rows + 1;
      EXPECT_TRUE(within(out, exact, [&](std::size_t) { return n * n * kFloatRoundoff; }))
          << rows << " x " << columns;
    }
  }
  EXPECT_GT(slabs_of_rows(5000, 3).count, 1);
  EXPECT_EQ(slabs_of_rows(5000, 100000).count, 1);
}

TYPED_TEST(CudaReduce, SetsAreSummedInSlabs) {
  using S = TypeParam;
  for (const Sets of : {Sets{1, 1, 1}, Sets{3, 5, 7}, Sets{40, 3, 301}, Sets{2, 2000, 3}}) {
    const auto x = random_values<S>(static_cast<std::size_t>(of.elements()), 4);
    const Slabs slabs = slabs_of_sets(of);
    std::vector<double> exact(of.sets), first;
    for (std::int64_t i = 0; i < of.elements(); ++i)
      exact[i / of.inner % of.sets] += static_cast<double>(reference::get(x[i]));
    for (const LaunchOrder order : kOrders) {
      std::vector<double> out(exact.size());
      std::vector<Sums<double, 1>> partial(slabs.count * of.sets);
      const SetSums<1, SetElements<S>> body{of, slabs, {x.data()}, partial.data(), {{out.data()}, false}};
      launch_on_host(body.mesh(), body, order);
      if (slabs.count > 1)
        launch_on_host(grid_for(of.sets),
                       ColumnTotals<double, 1>{of.sets, slabs.count, partial.data(), body.outputs}, order);
      if (first.empty()) first = out;
      EXPECT_EQ(out, first);
      const double n = static_cast<double>(of.outer * of.inner);
      EXPECT_TRUE(within(out, exact, [&](std::size_t) { return 2 * n * n * 0x1p-53; })) << of.sets;
    }
  }
  EXPECT_GT(slabs_of_sets({40, 3, 301}).count, 1);
}

}  // namespace
}  // namespace tenon::kernels::cuda::reduce_test
