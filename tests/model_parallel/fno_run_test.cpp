// Properties P10 and P11 in whole runs: the Fourier operator on shipped data, its points sharded by TOML
// alone, has the losses of one rank on every mesh and in both forms, and a checkpoint of one mesh continues
// on another.
#include "mesh_runs.hpp"

namespace tenon::integration::fno_run_test {
namespace {

const std::vector<std::string> kShort{"run.steps=6", "precision.type=\"fp64\""};

std::vector<double> with(std::vector<std::string> sets) {
  sets.insert(sets.end(), kShort.begin(), kShort.end());
  return losses("fno_darcy_2x2.toml", sets);
}

TEST(FnoRun, P11_LossesInDoublePrecisionAreThoseOfOneRank) {
  const auto alone = losses("fno_darcy.toml", kShort);
  ASSERT_EQ(alone.size(), 6u);
  EXPECT_LT(alone.back(), 0.95 * alone.front()) << "it learns";
  for (const char* mesh : {"parallel.grid=[2, 2]", "parallel.grid=[3, 1]", "parallel.grid=[1, 2]"})
    EXPECT_LE(worst(with({mesh}), alone), 1e-10) << mesh;
}

TEST(FnoRun, P11_SlabsToo) {
  const auto alone = losses("fno_darcy.toml", kShort);
  std::vector<std::string> sets{
      "parallel.grid=[3]",
      "model.insert=[{after = \"x\", name = \"spread\", type = \"repartition\", dims = [2], "
      "axes = [0]}, {after = \"y\", name = \"targets\", type = \"repartition\", dims = [2], "
      "axes = [0]}]",
      "model.override=[{match = \"*.spectral\", form = \"slab\"}]"};
  EXPECT_LE(worst(with(sets), alone), 1e-10);
}

TEST(FnoRun, P11_LossesInSinglePrecisionAreCloseToThoseOfOneRank) {
  const auto alone = losses("fno_darcy.toml", {"run.steps=10"}),
             spread = losses("fno_darcy_2x2.toml", {"run.steps=10"});
  ASSERT_EQ(alone.size(), 10u);
  EXPECT_LE(worst(spread, alone), 1e-4);
}

// Statistics of the batch norms are those of all points, also on meshes with uneven parts.
TEST(FnoRun, P12_BatchNormsOfPartsTrainLikeThoseOfOneRank) {
  std::vector<std::string> sets{"model.norm=\"batch\""};
  sets.insert(sets.end(), kShort.begin(), kShort.end());
  const auto alone = losses("fno_darcy.toml", sets);
  ASSERT_EQ(alone.size(), 6u);
  for (const char* mesh : {"[2, 2]", "[3, 1]"})
    EXPECT_LE(worst(with({sets.front(), std::string("parallel.grid=") + mesh}), alone), 1e-10) << mesh;
}

// Each of four ranks saved the weights and moments of its modes.
TEST(FnoRun, P10_ACheckpointOfFourRanksGoesOnOnOneTwoAndThree) {
  expect_to_go_on_on_other_grids("fno_darcy_2x2.toml");
}

}  // namespace
}  // namespace tenon::integration::fno_run_test
