// Properties P2, P4 and P5 of transposed convolutions in parts: random kernels, strides, dilations and
// paddings over 1 to 3 dimensions on meshes of 1 to 8 ranks, with uneven and empty parts and outputs that no
// input reaches, against one rank; and refusals that are equal on all ranks (P14).
#include "resampling.hpp"

#include <gmock/gmock.h>

namespace model_parallel::transposed_test {
namespace {

LayerInParts random_transposed(const std::vector<int>& mesh, Draw& draw) {
  LayerInParts c;
  const int spatial = draw.small(1, 3);
  const std::int64_t groups = draw.integer(1, 2);
  Numbers extents{draw.integer(1, 3), groups * draw.integer(1, 2)}, kernel, stride, dilation, padding, more;
  for (int d = 0; d < spatial; ++d) {
    const std::int64_t n = draw.integer(1, spatial == 3 ? 4 : 9);
    extents.push_back(n);
    kernel.push_back(draw.integer(1, 4));
    stride.push_back(draw.integer(1, 4));
    dilation.push_back(draw.integer(1, 3));
    more.push_back(draw.integer(0, std::max(stride.back(), dilation.back()) - 1));
    const std::int64_t all =
        (n - 1) * stride.back() + dilation.back() * (kernel.back() - 1) + more.back() + 1;
    padding.push_back(draw.integer(0, std::min<std::int64_t>(4, (all - 1) / 2)));
  }
  c.x = Shape(std::span<const std::int64_t>(extents));
  c.layer = {"",
             "conv_transpose",
             {},
             {{"features", groups * draw.integer(1, 3)},
              {"kernel", kernel},
              {"stride", stride},
              {"dilation", dilation},
              {"padding", padding},
              {"output_padding", more},
              {"groups", groups},
              {"bias", draw.integer(0, 3) > 0},
              {"chunk", draw.integer(0, 2)}}};
  c.sharding = random_sharding(c.x, mesh, false, draw);
  return c;
}

class Transposed : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Transposed, ::testing::Range(1, 9));

TEST_P(Transposed, P4_ConvolutionsAreThoseOfOneRankAndP2_P5_SoAreAllGradients) {
  expect_as_on_one_rank(GetParam(), Draw(2300 + static_cast<unsigned>(GetParam())), 3, 14, random_transposed);
}

// Fast products choose their order of summation by the number of rows, which differs between ranks.
TEST_P(Transposed, P4_WithTheFastestKernelsToRounding) {
  expect_fast_outputs_as_on_one_rank(GetParam(), Draw(2400 + static_cast<unsigned>(GetParam())), 10, 2e-6,
                                     random_transposed);
}

TEST(TransposedInParts, P14_RefuseShardedChannelsWithTheSameWordsOnAllRanks) {
  LayerInParts c;
  c.x = {2, 4, 6};
  c.layer = {"", "conv_transpose", {}, {{"features", std::int64_t{2}}, {"kernel", Numbers{3}}}};
  c.sharding = {.dims = {1}, .axes = {0}, .sizes = {}};
  tenon::testing::MeshRanks world({2});
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    RunInParts(bench, c, &at);
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], ::testing::HasSubstr(
                             "layer 'c': channels are sharded ([2, 4, 6], dimension 1 sharded over axis 0 at "
                             "0, 2, 4), which this layer cannot do; put a repartition before it"));
}

}  // namespace
}  // namespace model_parallel::transposed_test
