// Sliding windows: every set has the bits of the reference, for any split of the work. The tests of the
// device check the reference against loops over coordinates.
#include <tenon/kernels/reference/window.hpp>

#include "testing.hpp"

namespace tenon::kernels::window_test {
namespace {

using namespace testing;

const Window kWindows[] = {
    {{1, 1, 9}, {1, 1, 9}, {1, 1, 1}},
    {{1, 1, 100}, {1, 1, 33}, {1, 1, 4}, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}},
    {{1, 3, 37}, {1, 3, 37}},
    {{1, 3, 37}, {1, 3, 20}},
    {{1, 3, 20}, {1, 4, 37}},
    {{1, 1, 18}, {1, 1, 18}, {1, 1, 1}, {1, 1, 1}, {1, 1, 3}},
    {{1, 6, 28}, {1, 6, 28}, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {0, 2, 2}},
    {{1, 65, 64}, {1, 32, 32}, {1, 3, 2}, {1, 2, 2}},
    {{1, 7, 20}, {1, 7, 20}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {{1, 9, 70}, {1, 5, 68}, {1, 3, 5}, {1, 2, 1}, {1, 1, 2}, {0, 1, 3}},
    {{1, 8, 8}, {1, 4, 4}, {1, 2, 2}, {1, 2, 2}},
    {{1, 28, 28}, {1, 14, 14}, {1, 2, 2}, {1, 2, 2}},
    {{2, 6, 70}, {2, 3, 35}, {1, 2, 2}, {1, 2, 2}},
    {{1, 29, 28}, {1, 14, 14}, {1, 2, 2}, {1, 2, 2}},
    {{2, 7, 71}, {1, 2, 35}, {1, 2, 2}, {2, 3, 2}},
    {{1, 9, 70}, {1, 2, 22}, {1, 1, 2}, {1, 4, 3}, {1, 1, 1}, {0, -2, -1}},
    {{1, 5, 20}, {1, 3, 15}, {1, 2, 3}, {1, 1, 1}, {1, 1, 1}, {0, -1, -2}},
    {{4, 3, 5}, {3, 2, 2}, {2, 3, 2}, {1, 2, 2}, {2, 1, 1}, {1, 1, 0}},
};

template <class S>
struct WindowTest : ::testing::Test {};
TYPED_TEST_SUITE(WindowTest, Storages);

/// Runs all operators on random numbers, with the work split into pieces of `step`.
template <class S>
std::vector<S> run(const KernelTable& set, const Window& w, std::int64_t step) {
  const std::int64_t batch = 2, channels = 3, planes = batch * channels, elements = reference::elements(w),
                     places = reference::places(w), width = channels * reference::offsets(w);
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const auto x = random_values<S>(size(planes * elements), 1),
             dy = random_values<S>(size(planes * places), 2),
             c = random_values<S>(size(batch * places * width), 3);
  const auto& ops = testing::ops<S>(set).window;
  std::vector<S> all;
  const auto cut = [&](std::int64_t items, auto call) {
    for (std::int64_t i = 0; i < items; i += step) call(i, std::min(items, i + step));
  };
  const auto keep = [&](const std::vector<S>& values) {
    all.insert(all.end(), values.begin(), values.end());
  };

  std::vector<S> columns(c.size());
  const UnfoldArgs<S> unfold{w, batch, channels, channels * elements, x.data(), columns.data()};
  cut(batch * w.out[0] * w.out[1], [&](auto begin, auto end) { ops.unfold(unfold, begin, end); });
  keep(columns);
  for (const bool accumulate : {false, true}) {
    std::vector<S> out = x, y(dy.size());
    const FoldArgs<S> fold{w, batch, channels, channels * elements, c.data(), out.data(), accumulate};
    cut(planes, [&](auto begin, auto end) { ops.fold(fold, begin, end); });
    keep(out);
    std::vector<std::int32_t> index(dy.size());
    PoolArgs<S> pool{w, accumulate, x.data(), y.data(), index.data(), dy.data(), out.data(), accumulate};
    cut(planes, [&](auto begin, auto end) { ops.max_pool_forward(pool, begin, end); });
    keep(y);
    cut(planes, [&](auto begin, auto end) { ops.max_pool_backward(pool, begin, end); });
    keep(out);
    cut(planes, [&](auto begin, auto end) { ops.average_pool_forward(pool, begin, end); });
    keep(y);
    cut(planes, [&](auto begin, auto end) { ops.average_pool_backward(pool, begin, end); });
    keep(out);
  }
  return all;
}

TYPED_TEST(WindowTest, EverySetGivesTheBitsOfTheReference) {
  for (const Window& w : kWindows) {
    const auto expected = run<TypeParam>(reference_kernels(), w, 1000);
    for (const KernelTable* set : all_sets())
      for (const std::int64_t step : {1, 2, 1000})
        EXPECT_TRUE(same_bits(run<TypeParam>(*set, w, step), expected)) << set->name << " step " << step;
  }
}

}  // namespace
}  // namespace tenon::kernels::window_test
