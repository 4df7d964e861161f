// Property P16: LeNet-5 cut in height and width over 2 x 2 ranks, by TOML alone, has the losses of one rank;
// so have other grids, on which halos are wider than parts.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

namespace tenon::integration {
namespace {

std::vector<double> losses(const std::string& base, std::vector<std::string> sets) {
  const Scratch scratch;
  std::vector<std::string> words{"train",
                                 std::string(TENON_SOURCE_DIR) + "/configs/base/" + base,
                                 "--quiet",
                                 "--set",
                                 "run.log_every=1",
                                 "--set",
                                 "run.name=\"tiny\"",
                                 "--set",
                                 "run.eval_every=0",
                                 "--set",
                                 "data.batch=16"};
  for (std::string& set : sets) words.insert(words.end(), {"--set", std::move(set)});
  const Ended ended = scratch.run(words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  std::vector<double> values;
  std::ifstream lines(scratch / "runs/tiny/latest/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto metric = nlohmann::json::parse(line);
    if (metric.at("split") == "train" && metric.at("name") == "loss") values.push_back(metric.at("value"));
  }
  return values;
}

double worst(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return most;
}

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
  for (const char* grid :
       {"parallel.grid=[1, 1]", "parallel.grid=[3, 1]", "parallel.grid=[7, 1]", "parallel.grid=[2, 3]"}) {
    auto on_grid = sets;
    on_grid.emplace_back(grid);
    EXPECT_LE(worst(losses("lenet5_2x2.toml", on_grid), alone), 1e-10) << grid;
  }
}

TEST(LeNet, P16_ReplicasOfAGridTrainLikeReplicasOfOneRank) {
  const std::vector<std::string> sets{"run.steps=6", "precision.type=\"fp64\"", "parallel.ranks=2",
                                      "transport.type=\"thread\"", "sync.type=\"ddp\""};
  EXPECT_LE(worst(losses("lenet5_2x2.toml", sets), losses("lenet5.toml", sets)), 1e-10);
}

}  // namespace
}  // namespace tenon::integration
