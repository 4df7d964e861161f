// Matrix products: the exact chain that gemm.hpp promises, bit for bit, in every layout, and the error of
// that chain.
#include <tenon/kernels/reference/gemm.hpp>

#include "testing.hpp"

namespace tenon::kernels::gemm_test {
namespace {

using namespace testing;

struct Size {
  std::int64_t m, n, k;
};
// Around tile edges of every set (rows 4, 6, 12; columns 8, 16, 32), the row block 96 and the depth block
// 256.
constexpr Size kSizes[] = {{1, 1, 1},     {3, 5, 7}, {12, 32, 16}, {13, 33, 17}, {97, 9, 12}, {6, 9, 513},
                           {25, 33, 260}, {4, 4, 0}, {5, 24, 12},  {11, 16, 9},  {26, 48, 64}};

template <class S>
struct Problem {
  std::vector<S> a, b;
  GemmArgs<S, float> args;
};

/// Two products, padded leading dimensions.
template <class S>
Problem<S> make_problem(Size size, bool transpose_a, bool transpose_b, float alpha, float beta) {
  Problem<S> p;
  auto& g = p.args;
  g.m = size.m, g.n = size.n, g.k = size.k;
  g.transpose_a = transpose_a, g.transpose_b = transpose_b;
  g.lda = (transpose_a ? g.m : g.k) + 3;
  g.ldb = (transpose_b ? g.k : g.n) + 1;
  g.ldc = g.n + 2;
  g.alpha = alpha, g.beta = beta;
  g.batch = 2;
  g.stride_a = (transpose_a ? g.k : g.m) * g.lda + 5;
  g.stride_b = (transpose_b ? g.n : g.k) * g.ldb + 5;
  g.stride_c = g.m * g.ldc + 5;
  p.a = random_values<S>(static_cast<std::size_t>(2 * g.stride_a), 1);
  p.b = random_values<S>(static_cast<std::size_t>(2 * g.stride_b), 2);
  g.a = p.a.data();
  g.b = p.b.data();
  return p;
}

/// One element by the definition: a chain of fused multiply-adds, or of products and sums.
template <class S>
float chain(const GemmArgs<S, float>& g, std::int64_t product, std::int64_t i, std::int64_t j, bool fused,
            double* exact, double* magnitude) {
  float sum = 0.0f;
  *exact = *magnitude = 0.0;
  for (std::int64_t k = 0; k < g.k; ++k) {
    const float a =
        reference::get(g.a[product * g.stride_a + (g.transpose_a ? k * g.lda + i : i * g.lda + k)]);
    const float b =
        reference::get(g.b[product * g.stride_b + (g.transpose_b ? j * g.ldb + k : k * g.ldb + j)]);
    sum = fused ? std::fma(a, b, sum) : sum + a * b;
    *exact += static_cast<double>(a) * b;
    *magnitude += std::abs(static_cast<double>(a) * b);
  }
  return sum;
}

template <class S>
struct GemmTest : ::testing::Test {};
TYPED_TEST_SUITE(GemmTest, Storages);

TYPED_TEST(GemmTest, EveryElementIsThePromisedChain) {
  using S = TypeParam;
  const struct { float alpha, beta; } scalings[] = {{1, 0}, {1, 1}, {0.7f, -0.3f}};
  for (const Size size : kSizes)
    for (int layout = 0; layout < 4; ++layout)
      for (const auto scaling : scalings) {
        auto p = make_problem<S>(size, layout & 1, layout & 2, scaling.alpha, scaling.beta);
        const auto before = scaling.beta == 0 ? std::vector<float>(2 * p.args.stride_c, NAN)
                                              : random_values<float>(2 * p.args.stride_c, 3);
        const auto promised = [&](bool fused) {
          std::vector<float> expected = before;
          for (std::int64_t product = 0; product < 2; ++product)
            for (std::int64_t i = 0; i < size.m; ++i)
              for (std::int64_t j = 0; j < size.n; ++j) {
                float& e = expected[product * p.args.stride_c + i * p.args.ldc + j];
                double exact = 0, magnitude = 0;
                const float sum = chain(p.args, product, i, j, fused, &exact, &magnitude);
                const float scaled = scaling.alpha * sum;
                e = scaling.beta == 0 ? scaled : scaled + scaling.beta * e;
                // Classic bound of a recursive sum: k roundings of at most the sum of magnitudes.
                EXPECT_LE(std::abs(sum - exact),
                          1.01 * static_cast<double>(size.k) * kFloatRoundoff * magnitude);
              }
          return expected;
        };
        const auto plain = promised(false), fused = promised(true);
        for (const KernelTable* set : all_sets()) {
          std::vector<float> c = before;
          p.args.c = c.data();
          ops<S>(*set).gemm.gemm_wide(p.args);
          // Padding between rows and products is compared too: nothing outside C is written.
          ASSERT_TRUE(same_bits(c, fuses(*set) ? fused : plain))
              << set->name << " m " << size.m << " n " << size.n << " k " << size.k << " layout " << layout
              << " beta " << scaling.beta;
        }
      }
}

TYPED_TEST(GemmTest, NarrowOutputIsTheWideOneRounded) {
  using S = TypeParam;
  auto p = make_problem<S>({45, 50, 300}, false, true, 1, 0);
  for (const KernelTable* set : all_sets()) {
    std::vector<float> wide(2 * p.args.stride_c);
    std::vector<S> narrow(wide.size());
    p.args.c = wide.data();
    ops<S>(*set).gemm.gemm_wide(p.args);
    const auto& g = p.args;
    ops<S>(*set).gemm.gemm({g.m, g.n, g.k, g.a, g.lda, g.transpose_a, g.b, g.ldb, g.transpose_b,
                            narrow.data(), g.ldc, g.alpha, g.beta, g.batch, g.stride_a, g.stride_b,
                            g.stride_c});
    std::vector<S> expected;
    for (const float value : wide) expected.push_back(reference::put<S>(value));
    EXPECT_TRUE(same_bits(narrow, expected)) << set->name;
  }
}

TYPED_TEST(GemmTest, AnySplitOfRowsOrColumnsGivesTheSameBits) {
  using S = TypeParam;
  for (int layout = 0; layout < 4; ++layout) {
    auto p = make_problem<S>({101, 67, 30}, layout & 1, layout & 2, 0.5f, 0);
    p.args.batch = 1;
    for (const KernelTable* set : all_sets()) {
      const auto run = [&](auto part, std::int64_t extent, std::int64_t step) {
        std::vector<float> c(p.args.stride_c);
        p.args.c = c.data();
        for (std::int64_t begin = 0; begin < extent; begin += step)
          ops<S>(*set).gemm.gemm_wide(part(p.args, begin, std::min(extent, begin + step)));
        return c;
      };
      const auto rows = gemm_rows<S, float>;
      const auto whole = run(rows, 101, 101);
      for (const std::int64_t step : {1, 7, 50}) {
        EXPECT_TRUE(same_bits(run(rows, 101, step), whole)) << set->name << " rows by " << step;
        EXPECT_TRUE(same_bits(run(gemm_columns<S, float>, 67, step), whole))
            << set->name << " columns by " << step;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::gemm_test
