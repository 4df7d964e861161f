// Draws of many elements on every instruction set of this processor against draws of one.
#include "comm/random_blocks.hpp"

#include <tenon/portable_math.hpp>
#include <tenon/random.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace tenon {
namespace {

std::vector<const comm::RandomBlocks*> tables() {
  std::vector<const comm::RandomBlocks*> all;
  for (auto table = comm::all_random_blocks(); *table != nullptr; ++table) all.push_back(*table);
  return all;
}

void expect_bits(const char* set, const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(found[i]), std::bit_cast<std::uint64_t>(expected[i]))
        << set << ", element " << i << ": " << found[i] << " and " << expected[i];
  }
}

void expect_same_draws(std::uint64_t step, std::uint64_t first, std::int64_t count) {
  const RandomKey key = random_key(11, "init:blocks");
  std::vector<double> normals, uniforms;
  for (std::uint64_t i = first; i != first + static_cast<std::uint64_t>(count); ++i) {
    normals.push_back(random_normal(key, step, i));
    uniforms.push_back(random_uniform(key, step, i));
  }
  for (const comm::RandomBlocks* table : tables()) {
    constexpr double kUntouched = -77;
    std::vector<double> found(normals.size() + 1, kUntouched);
    table->normals(key.words, step, first, count, found.data());
    EXPECT_EQ(found.back(), kUntouched) << table->set << " writes beyond " << count << " elements";
    found.pop_back();
    expect_bits(table->set, found, normals);
    table->uniforms(key.words, step, first, count, found.data());
    expect_bits(table->set, found, uniforms);
  }
}

TEST(RandomBlocks, EveryCountAndPlace) {
  EXPECT_EQ(std::string(tables().front()->set), "portable");
  EXPECT_EQ(tables().back(), &comm::random_blocks());
  for (std::int64_t count = 0; count <= 40; ++count) expect_same_draws(0, 3, count);
  expect_same_draws(0, (std::uint64_t{1} << 32) - 13, 40);
  expect_same_draws((std::uint64_t{9} << 32) + 5, ~std::uint64_t{0} - 20, 40);
}

TEST(RandomBlocks, ManyDraws) {
  expect_same_draws(2, 1000, 200000);
}

// The bits of random_normal() for pairs at which the series, the quadrants and the exponent change.
TEST(RandomBlocks, EdgesOfTheTransform) {
  std::vector<std::uint64_t> edges{
      0, 1, (1u << 11) - 1, 1u << 11, ~std::uint64_t{0}, ~std::uint64_t{0} << 11};
  for (const double share : {0.125, 0.25, 0.375, 0.5, std::sqrt(0.5), 0.625, 0.75, 0.875}) {
    const auto middle = static_cast<std::uint64_t>(share * 0x1p64);
    for (const std::uint64_t away : {0u, 1u << 11, 2u << 11, 1u << 12}) {
      edges.push_back(middle - away);
      edges.push_back(middle + away);
    }
  }
  for (int bit = 11; bit < 64; ++bit) edges.push_back(std::uint64_t{1} << bit);
  std::vector<std::uint64_t> radii, angles;
  std::vector<double> expected;
  for (const std::uint64_t radius : edges) {
    for (const std::uint64_t angle : edges) {
      radii.push_back(radius);
      angles.push_back(angle);
      const double u1 = static_cast<double>((radius >> 11) + 1) * 0x1p-53;
      const double u2 = static_cast<double>(angle >> 11) * 0x1p-53;
      expected.push_back(std::sqrt(-2 * portable_log(u1)) * portable_turn(u2).cosine);
    }
  }
  for (const comm::RandomBlocks* table : tables()) {
    std::vector<double> found(expected.size());
    table->normals_of(radii.data(), angles.data(), static_cast<std::int64_t>(expected.size()), found.data());
    expect_bits(table->set, found, expected);
  }
}

}  // namespace
}  // namespace tenon
