// Boxes on the host launcher, over several grids and in either order of blocks and threads: every element
// against loops over all indices of both tensors, and sums as the adjoint of copies.
#include "testing.hpp"

#include <tenon/kernels/cuda/boxes.hpp>
#include <tenon/kernels/cuda/launch.hpp>

#include <cstdint>
#include <random>
#include <vector>

namespace tenon::kernels::cuda::boxes_test {
namespace {

using testing::same_bits;
using Extents = std::vector<std::int64_t>;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};
constexpr Grid kGrids[] = {{1, 32, 0}, {3, 64, 0}, {7, 256, 0}};

struct Boxes {
  Extents extents, from_shape, from_offset, to_shape, to_offset;
};
const Boxes kCases[] = {
    // No dimension; one of them; all of a tensor.
    {{}, {}, {}, {}, {}},
    {{5}, {9}, {3}, {6}, {1}},
    {{3, 4, 5}, {3, 4, 5}, {0, 0, 0}, {3, 4, 5}, {0, 0, 0}},
    // Lines, columns, and dimensions that are contiguous in one tensor alone.
    {{2, 3, 17}, {4, 5, 17}, {1, 2, 0}, {2, 3, 17}, {0, 0, 0}},
    {{6, 1}, {7, 9}, {1, 8}, {6, 1}, {0, 0}},
    {{2, 3, 4}, {2, 3, 4}, {0, 0, 0}, {2, 5, 4}, {0, 2, 0}},
    {{2, 3, 4}, {5, 3, 4}, {3, 0, 0}, {2, 3, 4}, {0, 0, 0}},
    // One index between two dimensions, first and last.
    {{3, 1, 4}, {3, 6, 4}, {0, 5, 0}, {4, 2, 4}, {1, 1, 0}},
    {{1, 5, 1}, {2, 5, 3}, {1, 0, 2}, {1, 7, 1}, {0, 2, 0}},
    // Halos of three dimensions, and as many dimensions as there may be.
    {{2, 3, 4, 1, 6}, {2, 3, 4, 5, 6}, {0, 0, 0, 4, 0}, {2, 3, 4, 1, 6}, {0, 0, 0, 0, 0}},
    {{1, 2, 1, 2, 3, 1, 2, 2},
     {2, 3, 1, 4, 3, 2, 2, 3},
     {1, 1, 0, 2, 0, 1, 0, 1},
     {1, 2, 2, 2, 4, 1, 3, 2},
     {0, 0, 1, 0, 1, 0, 1, 0}},
    // More elements than one grid has threads.
    {{31, 67, 3}, {40, 70, 8}, {9, 2, 5}, {33, 68, 3}, {2, 1, 0}},
    // Nothing.
    {{2, 0, 3}, {2, 4, 3}, {0, 1, 0}, {2, 5, 3}, {0, 5, 0}},
};

std::int64_t product(const Extents& extents) {
  std::int64_t result = 1;
  for (const std::int64_t extent : extents) result *= extent;
  return result;
}

BoxPair pair_of(const Boxes& c) {
  return box_pair(static_cast<int>(c.extents.size()), c.extents.data(), c.from_shape.data(),
                  c.from_offset.data(), c.to_shape.data(), c.to_offset.data());
}

/// Calls fn(place in from's tensor, in to's) for every index of the boxes, one dimension at a time.
template <class Fn>
void for_each_index(const Boxes& c, Fn&& fn) {
  for (std::int64_t i = 0; i < product(c.extents); ++i) {
    std::int64_t rest = i, from = 0, to = 0, from_stride = 1, to_stride = 1;
    for (std::size_t d = c.extents.size(); d-- > 0;) {
      const std::int64_t index = rest % c.extents[d];
      rest /= c.extents[d];
      from += (c.from_offset[d] + index) * from_stride, to += (c.to_offset[d] + index) * to_stride;
      from_stride *= c.from_shape[d], to_stride *= c.to_shape[d];
    }
    fn(from, to);
  }
}

template <class Word>
std::vector<Word> words(std::int64_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Word> result(count);
  for (Word& word : result) word = static_cast<Word>(random());
  return result;
}

template <class Fn>
void in_every_launch(Fn&& fn) {
  for (const Grid& grid : kGrids)
    for (const LaunchOrder order : kOrders) fn(grid, order);
}

template <class Word>
struct CudaBoxWords : ::testing::Test {};
using Words = ::testing::Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(CudaBoxWords, Words);

TYPED_TEST(CudaBoxWords, CopiesAndFillsAreTheBoxAndNothingElse) {
  using Word = TypeParam;
  for (const Boxes& c : kCases) {
    const auto from = words<Word>(product(c.from_shape), 1), before = words<Word>(product(c.to_shape), 2);
    const Word value = words<Word>(1, 3)[0];
    std::vector<Word> copied = before, filled = before;
    for_each_index(c, [&](std::int64_t source, std::int64_t target) {
      copied[target] = from[source];
      filled[target] = value;
    });
    in_every_launch([&](const Grid& grid, LaunchOrder order) {
      std::vector<Word> to = before;
      launch_on_host(grid, CopyBox<Word>{pair_of(c), from.data(), to.data()}, order);
      EXPECT_EQ(to, copied);
      to = before;
      launch_on_host(grid, FillBox<Word>{pair_of(c), value, to.data()}, order);
      EXPECT_EQ(to, filled);
    });
  }
}

template <class S>
struct CudaBoxSums : ::testing::Test {};
using Storages = ::testing::Types<float, Bf16, double>;
TYPED_TEST_SUITE(CudaBoxSums, Storages);

TYPED_TEST(CudaBoxSums, AreRoundedOnce) {
  using S = TypeParam;
  for (const Boxes& c : kCases) {
    const auto from = testing::random_values<S>(static_cast<std::size_t>(product(c.from_shape)), 1),
               before = testing::random_values<S>(static_cast<std::size_t>(product(c.to_shape)), 2);
    std::vector<S> expected = before;
    for_each_index(c, [&](std::int64_t source, std::int64_t target) {
      S& sum = expected[target];
      sum = put<S>(get(sum) + get(from[source]));
    });
    in_every_launch([&](const Grid& grid, LaunchOrder order) {
      std::vector<S> to = before;
      launch_on_host(grid, AddBox<S>{pair_of(c), from.data(), to.data()}, order);
      EXPECT_TRUE(same_bits(to, expected));
    });
  }
}

// <copy x, y> = <x, add y> with whole numbers, whose sums are exact in any order.
TEST(CudaBoxAdjoint, AddingBackIsTheAdjointOfCopying) {
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int> small(-9, 9);
  const auto numbers = [&](std::int64_t count) {
    std::vector<double> result(count);
    for (double& value : result) value = small(random);
    return result;
  };
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  for (const Boxes& c : kCases) {
    const auto x = numbers(product(c.from_shape)), y = numbers(product(c.to_shape));
    const Boxes back{c.extents, c.to_shape, c.to_offset, c.from_shape, c.from_offset};
    in_every_launch([&](const Grid& grid, LaunchOrder order) {
      std::vector<double> cut(y.size(), 0), added(x.size(), 0);
      launch_on_host(grid, CopyBox<double>{pair_of(c), x.data(), cut.data()}, order);
      launch_on_host(grid, AddBox<double>{pair_of(back), y.data(), added.data()}, order);
      EXPECT_EQ(dot(cut, y), dot(x, added));
    });
  }
}

// Every dimension that is left costs a division for each element.
TEST(CudaBoxPair, DimensionsThatLieTogetherAreOne) {
  const int dims[] = {0, 1, 1, 2, 1, 2, 1, 2, 1, 2};
  for (std::size_t i = 0; i < std::size(dims); ++i) EXPECT_EQ(pair_of(kCases[i]).dims, dims[i]) << i;
}

}  // namespace
}  // namespace tenon::kernels::cuda::boxes_test
