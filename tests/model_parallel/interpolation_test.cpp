// Properties P2, P4 and P5 of interpolation in parts: random scales over 1 to 3 dimensions on meshes of 1 to
// 8 ranks, with uneven and empty parts of any dimension, against one rank.
#include "resampling.hpp"

namespace model_parallel::interpolation_test {
namespace {

LayerInParts random_interpolation(const std::vector<int>& mesh, Draw& draw) {
  LayerInParts c;
  const int spatial = draw.small(1, 3);
  Numbers extents{draw.integer(1, 3), draw.integer(1, 3)}, scale;
  for (int d = 0; d < spatial; ++d) {
    extents.push_back(draw.integer(1, spatial == 3 ? 5 : 11));
    scale.push_back(draw.integer(1, 4));
  }
  c.x = Shape(std::span<const std::int64_t>(extents));
  const char* modes[] = {"nearest", "linear", "linear_aligned"};
  c.layer = {"", "upsample", {}, {{"scale", scale}, {"mode", std::string(modes[draw.integer(0, 2)])}}};
  c.sharding = random_sharding(c.x, mesh, true, draw);
  return c;
}

class Interpolations : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Interpolations, ::testing::Range(1, 9));

TEST_P(Interpolations, P4_AreThoseOfOneRankAndP2_P5_SoAreTheirGradients) {
  expect_as_on_one_rank(GetParam(), Draw(2100 + static_cast<unsigned>(GetParam())), 3, 14,
                        random_interpolation);
}

TEST_P(Interpolations, P4_WithTheFastestKernelsToo) {
  expect_fast_outputs_as_on_one_rank(GetParam(), Draw(2200 + static_cast<unsigned>(GetParam())), 10, 0,
                                     random_interpolation);
}

}  // namespace
}  // namespace model_parallel::interpolation_test
