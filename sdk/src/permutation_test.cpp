// The permutation without a table: one for every size, with uniform places.
#include <tenon/sdk/permutation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tenon {
namespace {

TEST(PermutationTest, IsOneForEverySize) {
  const RandomKey key = random_key(9, "order");
  for (std::uint64_t size = 1; size <= 300; ++size) {
    const Permutation permutation(size, key, size);
    std::vector<bool> seen(size, false);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t image = permutation(i);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]) << size << ": " << i;
      seen[image] = true;
    }
  }
}

TEST(PermutationTest, LooksRandom) {
  // Over many epochs each element goes to each place equally often.
  const RandomKey key = random_key(9, "order");
  constexpr int kSize = 10, kEpochs = 20000;
  int times[kSize][kSize] = {};
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation permutation(kSize, key, epoch);
    for (std::uint64_t i = 0; i < kSize; ++i) ++times[i][permutation(i)];
  }
  const double expected = kEpochs / kSize, deviation = std::sqrt(expected * (1 - 1.0 / kSize));
  for (const auto& row : times) {
    for (const int count : row) EXPECT_NEAR(count, expected, 5 * deviation);
  }
}

}  // namespace
}  // namespace tenon
