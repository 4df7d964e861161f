// Block-scaled quantizers, the properties of one matrix: ends, scales of the pinned order, symmetry,
// idempotence.
#include "quantizing.hpp"

namespace tenon::kernels::testing {
namespace {

TEST(Nvfp4Quantizer, P06_ZeroStaysZero) {
  const std::vector<float> x(64, 0.0f);
  const auto q = quantize_matrix(x, 2, 32, kNvfp4);
  EXPECT_EQ(q.tensor.encode, 1.0f);
  EXPECT_EQ(q.codes, std::vector<std::uint8_t>(64, 0));
  EXPECT_EQ(q.scales, std::vector<std::uint8_t>(4, 0));
  for (const float y : q.decoded()) EXPECT_EQ(y, 0.0f);
}

TEST(Nvfp4Quantizer, P07_BlockOfTheLargestHasTheLargestScale) {
  std::vector<float> x = random_values<float>(4096, 7);
  x[77] = -3.14f;
  const auto q = quantize_matrix(x, 64, 64, kNvfp4);
  EXPECT_EQ(q.scales[4], 0x7e);
  EXPECT_NEAR(q.decoded()[77], -3.14f, 2 * 0x1p-22);
}

}  // namespace
}  // namespace tenon::kernels::testing
