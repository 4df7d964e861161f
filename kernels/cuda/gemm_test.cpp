// Products on the host launcher: the bits of the reference and one rounding of the tail, for every layout,
// type, tile and order of threads.
#include "testing.hpp"

#include <tenon/kernels/cuda/gemm.hpp>
#include <tenon/kernels/reference/gemm.hpp>

#include <cmath>
#include <limits>

namespace tenon::kernels::cuda::gemm_test {
namespace {

using testing::random_values;
using testing::same_bits;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

/// Around the edges of tiles (64, 128) and slices (16).
struct Size {
  std::int64_t m, n, k;
};
constexpr Size kSizes[] = {{1, 1, 1},    {3, 5, 7},     {64, 64, 16}, {65, 63, 17}, {130, 129, 33},
                           {2, 200, 31}, {140, 1, 100}, {5, 70, 48},  {4, 4, 0}};
constexpr std::int64_t kBatch = 2;

template <class A, class B, class C>
struct Problem {
  using T = std::conditional_t<std::is_same_v<A, double>, double, float>;
  Size size;
  bool transpose_a, transpose_b;
  std::vector<A> a;
  std::vector<B> b;
  std::vector<C> c;
  std::vector<T> bias;

  Problem(const Size& s, bool ta, bool tb)
      : size(s),
        transpose_a(ta),
        transpose_b(tb),
        a(random_values<A>(static_cast<std::size_t>(kBatch * s.m * s.k), 1)),
        b(random_values<B>(static_cast<std::size_t>(kBatch * s.k * s.n), 2)),
        c(random_values<C>(static_cast<std::size_t>(kBatch * s.m * s.n), 3)),
        bias(random_values<T>(static_cast<std::size_t>(s.n), 4)) {}

  /// alpha times the sums, by the reference on widened operands.
  std::vector<T> scaled(T alpha) const {
    std::vector<T> wide_a, wide_b, out(c.size());
    for (const A x : a) wide_a.push_back(reference::get(x));
    for (const B x : b) wide_b.push_back(reference::get(x));
    GemmArgs<T, T> args;
    args.m = size.m, args.n = size.n, args.k = size.k;
    args.a = wide_a.data(), args.b = wide_b.data(), args.c = out.data();
    args.lda = transpose_a ? size.m : size.k;
    args.ldb = transpose_b ? size.k : size.n;
    args.ldc = size.n;
    args.transpose_a = transpose_a, args.transpose_b = transpose_b;
    args.alpha = alpha;
    args.batch = kBatch;
    args.stride_a = size.m * size.k, args.stride_b = size.k * size.n, args.stride_c = size.m * size.n;
    reference::gemm(args);
    return out;
  }

  std::vector<C> finished(const std::vector<T>& scaled, bool accumulate, bool with_bias, Map map) const {
    std::vector<C> out(c.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      T x = scaled[i];
      if (accumulate) x += reference::get(c[i]);
      if (with_bias) x += bias[i % bias.size()];
      out[i] = reference::put<C>(mapped(map, x));
    }
    return out;
  }

  template <int Tile>
  std::vector<C> computed(T alpha, bool accumulate, bool with_bias, Map map, LaunchOrder order) const {
    using Body = TiledGemm<A, B, T, C, Tile>;
    std::vector<C> out = c;
    const Body body{.m = size.m,
                    .n = size.n,
                    .k = size.k,
                    .a = a.data(),
                    .transpose_a = transpose_a,
                    .b = b.data(),
                    .transpose_b = transpose_b,
                    .alpha = alpha,
                    .tail = {out.data(), with_bias ? bias.data() : nullptr, accumulate, map}};
    launch_on_host(Body::grid(size.m, size.n, kBatch), body, order);
    return out;
  }
};

template <class A, class B, class C>
struct Types {
  using a = A;
  using b = B;
  using c = C;
};
template <class T>
struct CudaGemmTest : ::testing::Test {};
using Combinations =
    ::testing::Types<Types<float, float, float>, Types<double, double, double>, Types<Bf16, Bf16, Bf16>,
                     Types<Bf16, Bf16, float>, Types<float, float, Bf16>, Types<float, Bf16, float>,
                     Types<Bf16, float, Bf16>>;
TYPED_TEST_SUITE(CudaGemmTest, Combinations);

TYPED_TEST(CudaGemmTest, GivesTheBitsOfTheReference) {
  using P = Problem<typename TypeParam::a, typename TypeParam::b, typename TypeParam::c>;
  using T = typename P::T;
  int turn = 0;
  for (const Size& size : kSizes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const P problem(size, transpose_a, transpose_b);
        // Every combination of the tail occurs, not with every size.
        const bool accumulate = turn % 2 != 0, with_bias = turn / 2 % 3 != 0;
        const T alpha = turn % 5 == 0 ? T{1} : T{0.75};
        ++turn;
        const auto expected = problem.finished(problem.scaled(alpha), accumulate, with_bias, Map::kNone);
        for (const LaunchOrder order : kOrders) {
          EXPECT_TRUE(same_bits(
              problem.template computed<64>(alpha, accumulate, with_bias, Map::kNone, order), expected))
              << size.m << " " << size.n << " " << size.k << " " << transpose_a << transpose_b;
          EXPECT_TRUE(same_bits(
              problem.template computed<128>(alpha, accumulate, with_bias, Map::kNone, order), expected))
              << size.m << " " << size.n << " " << size.k << " " << transpose_a << transpose_b;
        }
      }
}

TYPED_TEST(CudaGemmTest, MapsBeforeTheOneRounding) {
  using P = Problem<typename TypeParam::a, typename TypeParam::b, typename TypeParam::c>;
  using T = typename P::T;
  const P problem({9, 70, 20}, false, true);
  const std::vector<T> scaled = problem.scaled(T{1});
  for (const Map map : {Map::kGeluTanh, Map::kGeluExact, Map::kRelu, Map::kSilu, Map::kSquaredRelu}) {
    const auto expected = problem.finished(scaled, true, true, map);
    EXPECT_TRUE(
        same_bits(problem.template computed<64>(T{1}, true, true, map, LaunchOrder::kAscending), expected));
    // The tail of a library's product is the same code after other sums.
    auto out = problem.c;
    launch_on_host(Grid{3},
                   FinishGemm<T, typename TypeParam::c>{scaled.data(),
                                                        static_cast<std::int64_t>(scaled.size()),
                                                        problem.size.n,
                                                        {out.data(), problem.bias.data(), true, map}});
    EXPECT_TRUE(same_bits(out, expected));
  }
}

TEST(CudaMaps, AreTheFormulasAndKeepNaNs) {
  const auto formula = [](Map map, double x) {
    switch (map) {
      case Map::kGeluTanh:
        return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
      case Map::kGeluExact:
        return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
      case Map::kRelu:
        return std::max(x, 0.0);
      case Map::kSilu:
        return x / (1 + std::exp(-x));
      case Map::kSquaredRelu:
        return std::pow(std::max(x, 0.0), 2);
      default:
        return x;
    }
  };
  for (const Map map :
       {Map::kNone, Map::kGeluTanh, Map::kGeluExact, Map::kRelu, Map::kSilu, Map::kSquaredRelu}) {
    for (double x = -6; x <= 6; x += 0.03125) {
      // A dozen roundings, each of at most |x|^2 + 1 in size.
      EXPECT_NEAR(mapped(map, x), formula(map, x), 12 * 0x1p-53 * (x * x + 1));
      EXPECT_NEAR(mapped(map, static_cast<float>(x)), formula(map, x), 12 * 0x1p-24 * (x * x + 1));
    }
    EXPECT_TRUE(std::isnan(mapped(map, std::numeric_limits<double>::quiet_NaN())));
    EXPECT_TRUE(std::isnan(mapped(map, std::numeric_limits<float>::quiet_NaN())));
  }
}

}  // namespace
}  // namespace tenon::kernels::cuda::gemm_test
