// Properties P10 and P11 in whole runs: the Fourier operator on shipped data, cut in its points by TOML
// alone, has the losses of one rank on every grid and in both forms, and a checkpoint of one grid goes on on
// another.
#include "grid_runs.hpp"

namespace tenon::integration {
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
  for (const char* grid : {"parallel.grid=[2, 2]", "parallel.grid=[3, 1]", "parallel.grid=[1, 2]"})
    EXPECT_LE(worst(with({grid}), alone), 1e-10) << grid;
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

// Each of four ranks saved the weights and moments of its modes. On other grids they are the same, and so is
// every step after them.
TEST(FnoRun, P10_ACheckpointOfFourRanksGoesOnOnOneTwoAndThree) {
  const auto sets = [](int steps, const std::string& grid) {
    return std::vector<std::string>{"precision.type=\"fp64\"", "recovery={type = \"full\", every = 2}",
                                    "run.steps=" + std::to_string(steps), "parallel.grid=" + grid};
  };
  const Scratch four;
  ASSERT_EQ(losses_in(four, "fno_darcy_2x2.toml", sets(2, "[2, 2]")).size(), 2u);
  const std::string weights = four.summary("weights_hash");
  std::vector<double> expected;
  for (const char* grid : {"[2, 2]", "[1, 1]", "[1, 2]", "[3, 1]"}) {
    const Scratch other;
    fs::copy(four / "runs", other / "runs", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    losses_in(other, "fno_darcy_2x2.toml", sets(2, grid), {"--resume"});
    EXPECT_EQ(other.summary("weights_hash"), weights) << grid;
    const auto found = losses_in(other, "fno_darcy_2x2.toml", sets(4, grid), {"--resume"});
    if (expected.empty()) expected = found;
    ASSERT_EQ(found.size(), 4u) << grid;
    EXPECT_LE(worst(found, expected), 1e-12) << grid;
  }
}

}  // namespace
}  // namespace tenon::integration
