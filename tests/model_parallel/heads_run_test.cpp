// Property N9 in whole runs: a decoder whose heads and neurons are shards over an axis of the mesh, by TOML
// alone, has the losses of one rank, and its checkpoints go on on other grids.
#include "mesh_runs.hpp"

namespace tenon::integration::heads_run_test {
namespace {

std::vector<std::string> sized(const std::string& pattern, int groups) {
  std::vector<std::string> sets = {"precision.type=\"fp64\"",
                                   "data.context=24",
                                   "data.batch=4",
                                   "model.width=24",
                                   "model.hidden=20",
                                   "model.repeat=1",
                                   "model.pattern=\"" + pattern + "\"",
                                   "device.threads=1"};
  if (pattern.find('M') != std::string::npos) {
    sets.insert(sets.end(), {"model.mamba_heads=4", "model.mamba_head_width=6", "model.mamba_state=8",
                             "model.mamba_chunk=7", "model.mamba_groups=" + std::to_string(groups)});
  }
  return sets;
}

/// Heads and neurons over `axis`.
std::string shards(const std::string& pattern, int axis) {
  const std::string over = "axes = [" + std::to_string(axis) + "]}";
  std::string edits = "model.override=[{match = \"model.layers.*.mlp.up_proj\", " + over +
                      ", {match = \"model.layers.*.mlp.gate_proj\", " + over +
                      ", {match = \"model.layers.*.self_attn.?_proj\", " + over +
                      ", {match = \"model.layers.*.self_attn.o_proj\", axes = []}";
  if (pattern.find('M') != std::string::npos) edits += ", {match = \"model.layers.*.mamba\", " + over;
  return edits + "]";
}

void expect_losses_of_one_rank(const std::string& pattern, int groups) {
  auto sets = sized(pattern, groups);
  sets.push_back("run.steps=5");
  const std::vector<double> alone = losses("llama_tiny.toml", sets);
  ASSERT_EQ(alone.size(), 5u);
  EXPECT_LT(alone.back(), alone.front()) << "it learns";
  sets.insert(sets.end(), {shards(pattern, 0), "parallel.grid=[2]", "transport.type=\"thread\""});
  EXPECT_LE(worst(losses("llama_tiny.toml", sets), alone), 1e-10) << pattern << " " << groups;
}

TEST(Heads, N9_OfAttentionTrainLikeThoseOfOneRank) {
  expect_losses_of_one_rank("*-", 1);
}

TEST(Heads, N9_OfAHybridTrainLikeThoseOfOneRank) {
  expect_losses_of_one_rank("M-M*-", 2);
  expect_losses_of_one_rank("M*-", 1);
}

TEST(Heads, N9_OfAHybridGoOnOnOtherGrids) {
  auto sets = sized("M*-", 2);
  sets.insert(sets.end(), {shards("M*-", 1), "transport.type=\"thread\""});
  expect_to_go_on_on_other_grids("llama_tiny.toml", sets);
}

}  // namespace
}  // namespace tenon::integration::heads_run_test
