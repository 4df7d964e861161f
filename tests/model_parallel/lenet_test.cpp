// Property P16: LeNet-5 over 2 x 2 ranks, its images sharded in height and width and its linear weights in
// rows and columns by TOML alone, has the losses of one rank; so have other meshes, on which halos are wider
// than parts. P10: its checkpoints continue on other meshes.
#include "mesh_runs.hpp"

namespace tenon::integration::lenet_test {
namespace {

TEST(LeNet, P16_LossesInDoublePrecisionAreThoseOfOneRankFor50Steps) {
  const std::vector<std::string> sets{"run.steps=50", "precision.type=\"fp64\""};
  const auto alone = losses("lenet5.toml", sets), spread = losses("lenet5_2x2.toml", sets);
  ASSERT_EQ(alone.size(), 50u);
  EXPECT_LE(worst(spread, alone), 1e-10);
  EXPECT_LT(alone.back(), 0.9 * alone.front()) << "it learns";
}

TEST(LeNet, P16_LossesInSinglePrecisionAreThoseOfOneRankFor20Steps) {
  const auto alone = losses("lenet5.toml", {"run.steps=20"}),
             spread = losses("lenet5_2x2.toml", {"run.steps=20"});
  ASSERT_EQ(alone.size(), 20u);
  EXPECT_LE(worst(spread, alone), 1e-4);
}

TEST(LeNet, P16_OtherGridsToo) {
  const std::vector<std::string> sets{"run.steps=6", "precision.type=\"fp64\""};
  const auto alone = losses("lenet5.toml", sets);
  for (const char* mesh :
       {"parallel.grid=[1, 1]", "parallel.grid=[3, 1]", "parallel.grid=[7, 1]", "parallel.grid=[2, 3]"}) {
    auto on_grid = sets;
    on_grid.emplace_back(mesh);
    EXPECT_LE(worst(losses("lenet5_2x2.toml", on_grid), alone), 1e-10) << mesh;
  }
}

TEST(LeNet, P16_ReplicasOfAGridTrainLikeReplicasOfOneRank) {
  const std::vector<std::string> sets{"run.steps=6", "precision.type=\"fp64\"", "parallel.ranks=2",
                                      "transport.type=\"thread\"", "sync.type=\"ddp\""};
  EXPECT_LE(worst(losses("lenet5_2x2.toml", sets), losses("lenet5.toml", sets)), 1e-10);
}

// Each of four ranks saved its rows and columns of the linear weights, and their moments.
TEST(LeNet, P10_ACheckpointOfFourRanksGoesOnOnOneTwoAndThree) {
  expect_to_go_on_on_other_grids("lenet5_2x2.toml");
}

}  // namespace
}  // namespace tenon::integration::lenet_test
