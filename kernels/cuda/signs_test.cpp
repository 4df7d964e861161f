// Signs on the host launcher, over several grids and in either order of blocks and threads: the bits of the
// host's loops, whose own sums and bytes are compared with the values that they represent.
#include "testing.hpp"

#include <tenon/kernels/cuda/signs.hpp>

#include <limits>

namespace tenon::kernels::cuda::signs_test {
namespace {

using testing::same_bits;

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};
/// Within a byte, a block and a tile, at their ends, and several of each.
constexpr std::int64_t kLengths[] = {1, 7, 8, 255, 257, 2048, 2049, 8192, 8193, 40003};

template <class A>
struct CudaSigns : ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaSigns, Reals);

template <class A>
std::vector<double> block_sums(const std::vector<A>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<double> sums;
  for (std::int64_t first = 0; first < n; first += kSignBlock)
    sums.push_back(sign_block_sum(x.data() + first, std::min(kSignBlock, n - first)));
  return sums;
}

/// `grid` with at most `blocks`, so that a block processes several tiles.
Grid with_blocks(Grid grid, std::int64_t blocks) {
  grid.blocks = std::min(grid.blocks, blocks);
  return grid;
}

TYPED_TEST(CudaSigns, ScalesAreTheHosts) {
  using A = TypeParam;
  // The last has more blocks than one round of lanes.
  for (const std::int64_t n : {1, 7, 255, 257, 8192, 8193, 40003, 2500000}) {
    auto x = testing::random_values<A>(static_cast<std::size_t>(n), 1);
    x[0] = -A{0};
    const std::vector<double> expected = block_sums(x);
    const auto count = static_cast<std::int64_t>(expected.size());
    const double total = sign_sum(count, [&](std::int64_t i) { return expected[i]; });
    long double exact = 0;
    for (const A value : x) exact += std::abs(static_cast<long double>(value));
    // Terms of one sign; each passes at most 32 + 8 sums in its block and 2 + 8 among the blocks.
    EXPECT_NEAR(total, static_cast<double>(exact), 50 * 0x1p-53 * static_cast<double>(exact)) << n;
    for (const LaunchOrder order : kOrders) {
      std::vector<double> sums(expected.size());
      const SignBlockSums<A> body{x.data(), n, sums.data()};
      launch_on_host(body.mesh(), body, order);
      EXPECT_EQ(sums, expected) << n;
      std::uint8_t bytes[7] = {};
      launch_on_host(SignScale::mesh(), SignScale{sums.data(), n, bytes + 1}, order);
      EXPECT_EQ(get_sign_scale(bytes + 1), static_cast<float>(total / static_cast<double>(n))) << n;
      EXPECT_EQ(bytes[0] | bytes[5] | bytes[6], 0);
    }
  }
}

TYPED_TEST(CudaSigns, BitsAndLossesAreTheHosts) {
  using A = TypeParam;
  constexpr float kScale = 0.3f;
  std::uint8_t scale[4];
  put_sign_scale(kScale, scale);
  for (const std::int64_t n : kLengths) {
    auto x = testing::random_values<A>(static_cast<std::size_t>(n), 2);
    x[n / 2] = -A{0};
    x[n / 3] = std::numeric_limits<A>::quiet_NaN();
    std::vector<std::uint8_t> bits(sign_bytes(n));
    std::vector<A> lost(x.size());
    encode_signs(x.data(), n, kScale, bits.data(), lost.data());
    for (std::int64_t i = 0; i < 8 * sign_bytes(n); ++i) {
      const bool negative = i < n && x[i] < 0;
      ASSERT_EQ(bits[i / 8] >> i % 8 & 1, negative ? 1 : 0) << n << ", " << i;
    }
    for (const LaunchOrder order : kOrders)
      for (const std::int64_t blocks : {1, 3, 1000}) {
        std::vector<std::uint8_t> found(bits.size(), 0xFF);
        const EncodeSigns<A> alone{x.data(), n, scale, found.data(), nullptr};
        launch_on_host(with_blocks(alone.mesh(), blocks), alone, order);
        EXPECT_EQ(found, bits) << n;
        std::vector<A> place = x;
        const EncodeSigns<A> body{place.data(), n, scale, found.data(), place.data()};
        launch_on_host(with_blocks(body.mesh(), blocks), body, order);
        EXPECT_EQ(found, bits) << n << " in place";
        EXPECT_TRUE(same_bits(place, lost)) << n << " in place";
      }
  }
}

TYPED_TEST(CudaSigns, MeansAreTheHosts) {
  using A = TypeParam;
  for (const std::int64_t members : {1, 2, 5})
    for (const std::int64_t n : kLengths) {
      // A stride that is no multiple of four, a byte before each scale and one before the bits.
      const std::int64_t stride = 6 + sign_bytes(n) + (1 + sign_bytes(n)) % 2;
      std::mt19937 random(3);
      std::vector<std::uint8_t> bytes(members * stride);
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
      const SignRows rows{bytes.data() + 1, bytes.data() + 6, members, stride};
      for (std::int64_t k = 0; k < members; ++k)
        put_sign_scale(1 / static_cast<float>(3 + k), bytes.data() + k * stride + 1);
      std::vector<A> expected(n);
      for (std::int64_t i = 0; i < n; ++i) {
        A own[8];
        rows.mean(i / 8, own);
        expected[i] = own[i % 8];
      }
      for (const LaunchOrder order : kOrders)
        for (const std::int64_t blocks : {1, 3, 1000}) {
          std::vector<A> found(expected.size());
          const DecodeSigns<A> body{rows, found.data(), n};
          launch_on_host(with_blocks(body.mesh(), blocks), body, order);
          EXPECT_TRUE(same_bits(found, expected)) << n << " of " << members;
        }
    }
}

}  // namespace
}  // namespace tenon::kernels::cuda::signs_test
