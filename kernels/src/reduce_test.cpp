// Sums in fixed order, the search for non-finite values, column sums and rows of tables: equal bits in every
// set and for every sharing of the work.
#include <limits>

#include "testing.hpp"

namespace tenon::kernels::reduce_test {
namespace {

using namespace testing;

template <class S>
struct ReduceTest : ::testing::Test {};
TYPED_TEST_SUITE(ReduceTest, Storages);

TYPED_TEST(ReduceTest, BlockSumsGiveTheSameBitsAndAreNearlyExact) {
  using S = TypeParam;
  for (const std::int64_t n :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{31}, kReduceBlock, 3 * kReduceBlock + 5}) {
    const auto x = random_values<S>(static_cast<std::size_t>(n), 1);
    long double sum = 0, squares = 0, magnitude = 0;
    for (const double v : to_double(x))
      sum += v, squares += static_cast<long double>(v) * v, magnitude += std::abs(v);
    std::vector<double> first;
    for (const KernelTable* set : all_sets()) {
      std::vector<double> sums(2 * reduce_blocks(n));
      double* second = sums.data() + reduce_blocks(n);
      ops<S>(*set).reduce.block_sums(x.data(), n, sums.data());
      ops<S>(*set).reduce.block_sums_of_squares(x.data(), n, second);
      if (first.empty()) first = sums;
      EXPECT_EQ(sums, first) << set->name;
      // A chain of kReduceBlock / 16 sums in a lane, then trees: below 300 roundings of 2^-53.
      EXPECT_NEAR(pairwise_sum(sums.data(), reduce_blocks(n)), static_cast<double>(sum),
                  300 * 0x1p-53 * static_cast<double>(magnitude));
      EXPECT_NEAR(pairwise_sum(second, reduce_blocks(n)), static_cast<double>(squares),
                  300 * 0x1p-53 * static_cast<double>(squares));
      // Shared by blocks among "threads": the same numbers.
      std::vector<double> shared(reduce_blocks(n));
      for (std::int64_t b = reduce_blocks(n) - 1; b >= 0; --b)
        ops<S>(*set).reduce.block_sums(x.data() + b * kReduceBlock,
                                       std::min(kReduceBlock, n - b * kReduceBlock), shared.data() + b);
      EXPECT_TRUE(std::equal(shared.begin(), shared.end(), sums.begin())) << set->name;
    }
  }
}

TEST(PairwiseSum, AddsByHalves) {
  const double values[] = {1e16, 1.0, -1e16, 1.0, 1.0};
  EXPECT_EQ(pairwise_sum(values, 5), (1e16 + 1.0 + -1e16) + 2.0);
  EXPECT_EQ(pairwise_sum(values, 0), 0.0);
}

TYPED_TEST(ReduceTest, FindsTheFirstNonFinite) {
  using S = TypeParam;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const KernelTable* set : all_sets())
    for (const std::int64_t n : {1, 17, 1024, 2500}) {
      auto x = random_values<S>(static_cast<std::size_t>(n), 2, -3e38, 3e38);
      EXPECT_EQ(ops<S>(*set).reduce.first_non_finite(x.data(), n), -1) << set->name;
      for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
        auto y = x;
        y.back() = reference::put<S>(bad);
        EXPECT_EQ(ops<S>(*set).reduce.first_non_finite(y.data(), n), n - 1) << set->name << " " << bad;
        y[n / 2] = reference::put<S>(bad);
        EXPECT_EQ(ops<S>(*set).reduce.first_non_finite(y.data(), n), n / 2) << set->name << " " << bad;
      }
    }
}

TYPED_TEST(ReduceTest, ColumnSumsGiveTheSameBitsForAnyColumns) {
  using S = TypeParam;
  constexpr std::int64_t rows = 101, cols = 145;
  const auto x = random_values<S>(rows * cols, 3);
  for (const bool accumulate : {false, true}) {
    const auto before = random_values<float>(cols, 4);
    const auto run = [&](const KernelTable& set, std::int64_t step) {
      std::vector<float> y = before;
      for (std::int64_t j = 0; j < cols; j += step)
        ops<S>(set).reduce.column_sums(x.data(), y.data(), rows, cols, j, std::min(cols, j + step),
                                       accumulate);
      return y;
    };
    const auto expected = run(reference_kernels(), cols);
    for (const KernelTable* set : all_sets())
      for (const std::int64_t step : {cols, std::int64_t{7}})
        EXPECT_TRUE(same_bits(run(*set, step), expected)) << set->name;
    for (std::size_t j = 0; j < cols; ++j) {
      double exact = accumulate ? static_cast<double>(before[j]) : 0.0;
      for (std::size_t r = 0; r < rows; ++r) exact += static_cast<double>(reference::get(x[r * cols + j]));
      EXPECT_NEAR(expected[j], exact, (32 + 4 + 1) * kFloatRoundoff * (rows + 1));
    }
  }
}

TYPED_TEST(ReduceTest, EmbeddingGathersAndScattersInOrder) {
  using S = TypeParam;
  constexpr std::int64_t vocab = 11, cols = 21, n = 60;
  std::vector<std::int32_t> indices;
  for (std::int32_t i = 0; i < n; ++i) indices.push_back(i * 7 % 5 + (i % 3 == 0 ? 6 : 0));
  const auto table = random_values<S>(vocab * cols, 5), dy = random_values<S>(n * cols, 6);
  const auto before = random_values<float>(vocab * cols, 7);
  std::vector<float> expected = before;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < cols; ++j)
      expected[static_cast<std::size_t>(indices[i]) * cols + j] += reference::get(dy[i * cols + j]);
  for (const KernelTable* set : all_sets()) {
    std::vector<S> y(n * cols);
    ops<S>(*set).embedding.gather(table.data(), indices.data(), y.data(), n, cols);
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(reference::get(y[i]),
                reference::get(table[static_cast<std::size_t>(indices[i / cols]) * cols + i % cols]));
    for (const std::int64_t owned : {std::int64_t{1}, std::int64_t{4}, vocab}) {
      std::vector<float> dtable = before;
      for (std::int64_t row = 0; row < vocab; row += owned)
        ops<S>(*set).embedding.scatter_add(dy.data(), indices.data(), dtable.data(), n, cols, row,
                                           std::min(vocab, row + owned));
      EXPECT_TRUE(same_bits(dtable, expected)) << set->name;
    }
  }
}

TEST(Embedding, ReportsTheFirstBadIndex) {
  const std::int32_t indices[] = {0, 4, -1, 5};
  EXPECT_EQ(first_bad_index(indices, 4, 0, 5), 2);
  EXPECT_EQ(first_bad_index(indices, 4, -1, 5), 3);
  EXPECT_EQ(first_bad_index(indices, 4, -1, 6), -1);
}

}  // namespace
}  // namespace tenon::kernels::reduce_test
