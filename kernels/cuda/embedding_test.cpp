// Gather and scatter on CUDA: the bits of sums in ascending order of the ids, in both launch orders.
#include "testing.hpp"

#include <tenon/kernels/cuda/elementwise.hpp>
#include <tenon/kernels/cuda/embedding.hpp>
#include <tenon/kernels/cuda/sort.hpp>
#include <tenon/kernels/reference/reduce.hpp>

#include <algorithm>
#include <numeric>

namespace tenon::kernels::cuda::embedding_test {
namespace {

using namespace kernels::testing;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

std::vector<std::int32_t> random_ids(std::size_t n, std::int64_t rows, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> ids(n);
  for (auto& id : ids) id = static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(rows));
  return ids;
}

struct Sorted {
  std::vector<std::int32_t> ids, positions;
};

Sorted sorted(const std::vector<std::int32_t>& ids, std::int64_t rows, LaunchOrder order) {
  const auto n = static_cast<std::int64_t>(ids.size());
  const Grid grid = SortPass::grid(n);
  Sorted from{ids, {}}, to{ids, ids};
  std::vector<std::int32_t> places(kDigits * grid.blocks);
  for (int pass = 0; pass < sort_passes(rows); ++pass) {
    const SortPass step{n,
                        pass * kDigitBits,
                        from.ids.data(),
                        pass == 0 ? nullptr : from.positions.data(),
                        to.ids.data(),
                        to.positions.data(),
                        places.data()};
    launch_on_host(grid, CountDigits{step}, order);
    launch_on_host(SumPlaces::mesh(), SumPlaces{kDigits * grid.blocks, places.data()}, order);
    launch_on_host(grid, MoveIds{step}, order);
    from.positions.resize(ids.size());
    std::swap(from, to);
  }
  return from;
}

TEST(CudaSort, IsStable) {
  for (const std::size_t n : {1u, 7u, 2048u, 2049u, 10001u})
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{3}, std::int64_t{16}, std::int64_t{17},
                                    std::int64_t{70000}, std::int64_t{2147483647}}) {
      const auto ids = random_ids(n, rows, 5);
      std::vector<std::int32_t> positions(n);
      std::iota(positions.begin(), positions.end(), 0);
      std::stable_sort(positions.begin(), positions.end(),
                       [&](std::int32_t a, std::int32_t b) { return ids[a] < ids[b]; });
      for (const LaunchOrder order : kOrders) {
        const Sorted found = sorted(ids, rows, order);
        EXPECT_EQ(found.positions, positions) << n << " ids below " << rows;
        EXPECT_TRUE(std::is_sorted(found.ids.begin(), found.ids.end())) << n << " ids below " << rows;
      }
    }
}

template <class S>
struct CudaEmbedding : ::testing::Test {};
TYPED_TEST_SUITE(CudaEmbedding, Storages);

TYPED_TEST(CudaEmbedding, AddsDuplicatesInTheirOrder) {
  using S = TypeParam;
  for (const auto& [n, rows, width] :
       {std::tuple{1, 1, 1}, std::tuple{500, 3, 5}, std::tuple{3000, 40, 33}}) {
    const auto ids = random_ids(static_cast<std::size_t>(n), rows, 6);
    const auto dy = random_values<S>(static_cast<std::size_t>(n * width), 7);
    const auto old = random_values<float>(static_cast<std::size_t>(rows * width), 8);
    auto expected = old;
    reference::scatter_add(dy.data(), ids.data(), expected.data(), n, width, 0, rows);
    for (const LaunchOrder order : kOrders)
      for (const std::int64_t blocks : {1, 7}) {
        const Sorted by_id = sorted(ids, rows, order);
        auto gradient = old;
        launch_on_host(
            Grid{blocks},
            ScatterSorted<S>{n, width, by_id.ids.data(), by_id.positions.data(), dy.data(), gradient.data()},
            order);
        EXPECT_TRUE(same_bits(gradient, expected)) << n << " ids, " << width << " columns";
      }
  }
}

TYPED_TEST(CudaEmbedding, GathersRows) {
  using S = TypeParam;
  constexpr std::int64_t kRows = 9, kWidth = 13, kIds = 50;
  const auto table = random_values<float>(kRows * kWidth, 9);
  const auto ids = random_ids(kIds, kRows, 10);
  const auto old = random_values<S>(kIds * kWidth, 11);
  for (const LaunchOrder order : kOrders)
    for (const bool accumulate : {false, true}) {
      auto out = old, expected = old;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const float value = table[static_cast<std::size_t>(ids[i / kWidth]) * kWidth + i % kWidth];
        expected[i] = reference::put<S>(accumulate ? reference::get(old[i]) + value : value);
      }
      using Map = Gathered<S>;
      launch_on_host(
          Grid{2},
          MapElements<S, Map>{out.data(), kIds * kWidth,
                              Map{table.data(), ids.data(), kWidth, accumulate ? out.data() : nullptr}},
          order);
      EXPECT_TRUE(same_bits(out, expected)) << accumulate;
    }
}

}  // namespace
}  // namespace tenon::kernels::cuda::embedding_test
