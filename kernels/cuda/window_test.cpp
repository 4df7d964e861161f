// Sliding windows on the host launcher: the bits of the reference, for either order of threads.
#include "testing.hpp"

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/pool.hpp>
#include <tenon/kernels/reference/window.hpp>

#include <limits>

namespace tenon::kernels::cuda::window_test {
namespace {

using testing::random_values;
using testing::same_bits;

// Places in one to three dimensions, gaps, padding of either sign, windows larger than their planes, more
// elements than a tile.
const Window kWindows[] = {
    {{1, 1, 9}, {1, 1, 9}, {1, 1, 1}},
    {{1, 1, 1100}, {1, 1, 366}, {1, 1, 4}, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}},
    {{1, 3, 37}, {1, 3, 20}},
    {{1, 6, 28}, {1, 6, 28}, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {0, 2, 2}},
    {{1, 9, 70}, {1, 5, 68}, {1, 3, 5}, {1, 2, 1}, {1, 1, 2}, {0, 1, 3}},
    {{1, 9, 70}, {1, 2, 22}, {1, 1, 2}, {1, 4, 3}, {1, 1, 1}, {0, -2, -1}},
    {{4, 3, 5}, {3, 2, 2}, {2, 3, 2}, {1, 2, 2}, {2, 1, 1}, {1, 1, 0}},
    {{1, 1, 2}, {1, 1, 4}, {1, 1, 2}, {1, 1, 2}, {1, 1, 1}, {0, 0, 3}},
};

template <class S>
struct CudaWindowTest : ::testing::Test {};
using Storages = ::testing::Types<float, Bf16, double>;
TYPED_TEST_SUITE(CudaWindowTest, Storages);

struct Case {
  Window window;
  std::int64_t batch, channels, all_channels;  ///< x has more channels than the columns

  std::int64_t elements() const { return volume(window.in); }
  std::int64_t places() const { return volume(window.out); }
  std::int64_t width() const { return channels * volume(window.kernel); }
  template <class S>
  std::vector<S> planes(std::int64_t of_plane, unsigned seed) const {
    return random_values<S>(static_cast<std::size_t>(batch * all_channels * of_plane), seed);
  }
};

template <class Check>
void for_each_case(Check check) {
  for (const Window& window : kWindows)
    for (const auto& [channels, all] : {std::pair{1, 1}, {3, 5}, {40, 40}})
      check(Case{window, 2, channels, all});
}

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

TYPED_TEST(CudaWindowTest, UnfoldMovesWhatTheReferenceMoves) {
  using S = TypeParam;
  for_each_case([](const Case& c) {
    const auto x = c.planes<S>(c.elements(), 1);
    std::vector<S> expected(c.batch * c.places() * c.width());
    UnfoldArgs<S> args{c.window, c.batch,        c.channels, c.all_channels * c.elements(),
                       x.data(), expected.data()};
    reference::unfold(args, 0, c.batch * c.window.out[0] * c.window.out[1]);
    for (const LaunchOrder order : kOrders) {
      auto own = random_values<S>(expected.size(), 9);
      args.columns = own.data();
      const Unfold<S> body{args, WindowTile::for_columns(c.width())};
      launch_on_host(body.mesh(), body, order);
      EXPECT_TRUE(same_bits(own, expected)) << c.channels << " channels";
    }
  });
}

TYPED_TEST(CudaWindowTest, FoldGivesTheBitsOfTheReferenceAndLeavesOtherChannels) {
  using S = TypeParam;
  for_each_case([](const Case& c) {
    const auto columns = random_values<S>(static_cast<std::size_t>(c.batch * c.places() * c.width()), 3);
    for (const bool accumulate : {false, true}) {
      auto expected = c.planes<S>(c.elements(), 2);
      FoldArgs<S> args{c.window,       c.batch,         c.channels, c.all_channels * c.elements(),
                       columns.data(), expected.data(), accumulate};
      reference::fold(args, 0, c.batch * c.channels);
      for (const LaunchOrder order : kOrders) {
        auto own = c.planes<S>(c.elements(), 2);
        args.x = own.data();
        const Fold<S> body{args, WindowTile::for_columns(c.channels)};
        launch_on_host(body.mesh(), body, order);
        EXPECT_TRUE(same_bits(own, expected)) << c.channels << " channels, accumulate " << accumulate;
      }
    }
  });
}

/// y, index and dx of a pair of pools; dx begins as x.
template <class S>
struct Pooled {
  std::vector<S> y, dx;
  std::vector<std::int32_t> index;
};

template <class S, class Run>
Pooled<S> pooled(const Case& c, const std::vector<S>& x, const std::vector<S>& dy, bool flag, Run run) {
  Pooled<S> r{std::vector<S>(dy.size()), x, std::vector<std::int32_t>(dy.size(), -7)};
  run(PoolArgs<S>{c.window, flag, x.data(), r.y.data(), r.index.data(), dy.data(), r.dx.data(), flag},
      c.batch * c.all_channels);
  return r;
}

/// Few values, so greatest ones repeat, and a NaN here and there.
template <class S>
std::vector<S> repeating(std::vector<S> values) {
  using A = Arith<S>;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = put<S>(std::floor(get(values[i]) * A{3}));
    if (i % 37 == 5) values[i] = put<S>(std::numeric_limits<A>::quiet_NaN());
  }
  return values;
}

TYPED_TEST(CudaWindowTest, PoolsGiveTheBitsOfTheReference) {
  using S = TypeParam;
  for_each_case([](const Case& c) {
    const auto x = repeating(c.planes<S>(c.elements(), 1)), dy = c.planes<S>(c.places(), 2);
    for (const bool flag : {false, true}) {
      const auto most = pooled<S>(c, x, dy, flag, [](const PoolArgs<S>& args, std::int64_t planes) {
        reference::max_pool_forward(args, 0, planes);
        reference::max_pool_backward(args, 0, planes);
      });
      const auto mean = pooled<S>(c, x, dy, flag, [](const PoolArgs<S>& args, std::int64_t planes) {
        reference::average_pool_forward(args, 0, planes);
        reference::average_pool_backward(args, 0, planes);
      });
      for (const LaunchOrder order : kOrders) {
        const auto launch = [&](const auto& body) { launch_on_host(Grid{3, 64}, body, order); };
        const auto own_most = pooled<S>(c, x, dy, flag, [&](const PoolArgs<S>& args, std::int64_t planes) {
          launch(MaxPool<S>{args, planes});
          launch(MaxPoolBackward<S>{args, planes});
        });
        const auto own_mean = pooled<S>(c, x, dy, flag, [&](const PoolArgs<S>& args, std::int64_t planes) {
          launch(AveragePool<S>{args, planes});
          launch(AveragePoolBackward<S>{args, planes});
        });
        EXPECT_TRUE(same_bits(own_most.y, most.y) && same_bits(own_most.dx, most.dx));
        EXPECT_EQ(own_most.index, most.index);
        EXPECT_TRUE(same_bits(own_mean.y, mean.y));
        EXPECT_TRUE(same_bits(own_mean.dx, mean.dx));
      }
    }
  });
}

}  // namespace
}  // namespace tenon::kernels::cuda::window_test
