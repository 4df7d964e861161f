// The tiled layout of block scales.
#include <tenon/kernels/scales.hpp>

#include "testing.hpp"

namespace tenon::kernels::swizzle_test {
namespace {

struct Size {
  std::int64_t outer, inner;
};
constexpr Size kSizes[] = {{1, 1}, {128, 4}, {129, 5}, {300, 9}, {32, 16}, {257, 4}};

TEST(ScaleSwizzle, P27_IsABijectionOnThePaddedGrid) {
  for (const auto& [outer, inner] : kSizes) {
    const std::int64_t rows = swizzled_outer(outer), columns = swizzled_inner(inner);
    std::vector<int> hits(rows * columns, 0);
    for (std::int64_t o = 0; o < rows; ++o)
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::int64_t offset = swizzled_offset(o, i, inner);
        ASSERT_TRUE(offset >= 0 && offset < rows * columns) << o << " " << i;
        ++hits[offset];
        // reshape (O/128, 4, 32, I/4, 4), then order (O/128, I/4, 32, 4, 4)
        const std::int64_t permuted =
            (((o / 128 * (columns / 4) + i / 4) * 32 + o % 32) * 4 + o % 128 / 32) * 4 + i % 4;
        ASSERT_EQ(offset, permuted) << o << " " << i;
      }
    EXPECT_EQ(hits, std::vector<int>(hits.size(), 1));
  }
}

TEST(ScaleSwizzle, P27_ComesBackAndPadsWithZeros) {
  for (const auto& [outer, inner] : kSizes) {
    std::vector<std::uint8_t> scales(outer * inner);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(1 + i % 255);
    std::vector<std::uint8_t> swizzled(swizzled_outer(outer) * swizzled_inner(inner), 0xcc);
    swizzle_scales(scales.data(), outer, inner, swizzled.data());
    EXPECT_EQ(static_cast<std::size_t>(std::count(swizzled.begin(), swizzled.end(), std::uint8_t{0})),
              swizzled.size() - scales.size());
    std::vector<std::uint8_t> back(scales.size());
    unswizzle_scales(swizzled.data(), outer, inner, back.data());
    EXPECT_EQ(back, scales);
  }
}

}  // namespace
}  // namespace tenon::kernels::swizzle_test
