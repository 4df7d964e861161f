// Interactions on the host launcher: the bits of the reference, for either order of threads.
#include "testing.hpp"

#include <tenon/kernels/cuda/interaction.hpp>
#include <tenon/kernels/reference/interaction.hpp>
#include <tenon/kernels/reference/reduce.hpp>

namespace tenon::kernels::cuda::interaction_test {
namespace {

using testing::random_values;
using testing::same_bits;

template <class S>
struct CudaInteractionTest : ::testing::Test {};
using Storages = ::testing::Types<float, Bf16, double>;
TYPED_TEST_SUITE(CudaInteractionTest, Storages);

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

struct Size {
  std::int64_t samples, vectors, width;
};
// One vector alone; tiles that are partial, filled and several, along vectors and along the width.
constexpr Size kSizes[] = {{3, 1, 5},   {3, 2, 1},   {4, 5, 16},  {2, 27, 33},
                           {2, 32, 32}, {1, 33, 64}, {1, 70, 100}};

template <class S>
struct Problem {
  Size size;
  bool itself;
  std::vector<S> z0, z, dy;

  Problem(Size s, bool with_itself) : size(s), itself(with_itself) {
    z0 = random_values<S>(static_cast<std::size_t>(s.samples * s.width), 1);
    z = random_values<S>(static_cast<std::size_t>(s.samples * (s.vectors - 1) * s.width), 2);
    dy = random_values<S>(static_cast<std::size_t>(s.samples * columns()), 3);
  }
  std::int64_t columns() const {
    return size.width + (itself ? size.vectors * (size.vectors + 1) : size.vectors * (size.vectors - 1)) / 2;
  }
};

/// Gradients begin as the vectors.
template <class S>
struct Results {
  std::vector<S> y, dz0, dz;
  explicit Results(const Problem<S>& p) : y(p.dy), dz0(p.z0), dz(p.z) {}
  InteractionArgs<S> args(const Problem<S>& p, bool accumulate_z0, bool accumulate_z) {
    return {p.size.vectors, p.size.width, p.columns(), p.itself,  p.z0.data(),   p.z.data(),
            y.data(),       p.dy.data(),  dz0.data(),  dz.data(), accumulate_z0, accumulate_z};
  }
};

TYPED_TEST(CudaInteractionTest, DotProductsGiveTheBitsOfTheReference) {
  using S = TypeParam;
  for (const Size size : kSizes)
    for (const bool itself : {false, true})
      for (const bool accumulate : {false, true}) {
        const Problem<S> p(size, itself);
        Results<S> expected(p);
        const auto args = expected.args(p, accumulate, !accumulate);
        reference::interaction_forward(args, 0, size.samples);
        reference::interaction_backward(args, 0, size.samples);
        for (const LaunchOrder order : kOrders) {
          Results<S> own(p);
          const auto own_args = own.args(p, accumulate, !accumulate);
          const InteractionForward<S> forward{own_args, size.samples};
          const InteractionBackward<S> backward{own_args, size.samples};
          launch_on_host(forward.mesh(), forward, order);
          launch_on_host(backward.mesh(), backward, order);
          EXPECT_TRUE(same_bits(own.y, expected.y)) << size.vectors << " vectors of " << size.width;
          EXPECT_TRUE(same_bits(own.dz0, expected.dz0)) << size.vectors << " vectors of " << size.width;
          EXPECT_TRUE(same_bits(own.dz, expected.dz)) << size.vectors << " vectors of " << size.width;
        }
      }
}

TYPED_TEST(CudaInteractionTest, WritesTheGradientsThatAreAskedForAlone) {
  using S = TypeParam;
  const Problem<S> p({2, 40, 33}, false);
  Results<S> whole(p);
  reference::interaction_backward(whole.args(p, false, false), 0, 2);
  for (const bool first : {false, true}) {
    Results<S> own(p);
    auto args = own.args(p, false, false);
    (first ? args.dz : args.dz0) = nullptr;
    const InteractionBackward<S> body{args, 2};
    launch_on_host(body.mesh(), body);
    EXPECT_TRUE(same_bits(own.dz0, first ? whole.dz0 : p.z0));
    EXPECT_TRUE(same_bits(own.dz, first ? p.z : whole.dz));
  }
}

TYPED_TEST(CudaInteractionTest, SumsAndRowsAreThoseOfTheReference) {
  using S = TypeParam;
  constexpr std::int64_t kSamples = 3, kWidth = 7;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  for (const std::int64_t count : {0, 1, 31, 75}) {
    const auto z0 = random_values<S>(size(kSamples * kWidth), 1),
               z = random_values<S>(size(kSamples * count * kWidth), 2);
    std::vector<S> sum(z0.size()), rows;
    for (std::int64_t s = 0; s < kSamples; ++s) {
      Arith<S> column[kWidth];
      reference::column_sums(z.data() + s * count * kWidth, column, count, kWidth, 0, kWidth, false);
      for (std::int64_t k = 0; k < kWidth; ++k)
        sum[size(s * kWidth + k)] = put<S>(get(z0[size(s * kWidth + k)]) + column[k]);
      rows.insert(rows.end(), z0.begin() + s * kWidth, z0.begin() + (s + 1) * kWidth);
      rows.insert(rows.end(), z.begin() + s * count * kWidth, z.begin() + (s + 1) * count * kWidth);
    }
    for (const LaunchOrder order : kOrders) {
      std::vector<S> y(z0.size()), all(rows.size()), first(z0.size()), rest = z;
      const Grid grid{2, 64};
      launch_on_host(grid, SumVectors<S>{z0.data(), z.data(), y.data(), kSamples, count, kWidth}, order);
      EXPECT_TRUE(same_bits(y, sum)) << count << " vectors";
      launch_on_host(grid,
                     ConcatenateVectors<S>{z0.data(), z.data(), all.data(), kSamples, kWidth, count * kWidth},
                     order);
      EXPECT_TRUE(same_bits(all, rows)) << count << " vectors";
      const std::int64_t columns = (count + 1) * kWidth;
      launch_on_host(grid, SpreadRows<S>{rows.data(), first.data(), kSamples, columns, 0, 1, kWidth, false},
                     order);
      EXPECT_TRUE(same_bits(first, z0)) << count << " vectors";
      launch_on_host(grid, SpreadRows<S>{z0.data(), rest.data(), kSamples, kWidth, 0, count, kWidth, true},
                     order);
      for (std::int64_t i = 0; i < kSamples * count * kWidth; ++i) {
        const S& above = z0[size(i / (count * kWidth) * kWidth + i % kWidth)];
        ASSERT_EQ(get(rest[size(i)]), get(put<S>(get(z[size(i)]) + get(above)))) << i;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::cuda::interaction_test
