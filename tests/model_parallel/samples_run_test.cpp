// Properties P9 and P13 in whole runs: a convolutional network of which every rank computes some samples,
// down to the loss, by TOML alone, has the losses, the dropout and the evaluation of one rank.
#include "mesh_runs.hpp"

namespace tenon::integration::samples_run_test {
namespace {

/// LeNet-5 as it was published: the layers after the second pool are convolutions, too. `conv` and `pool` are
/// layer types; `edits` are nodes to insert.
std::vector<std::string> all_convolutions(const std::string& conv, const std::string& pool,
                                          const std::string& edits) {
  const auto layer = [&](const char* name, const char* options) {
    return ", {match = \"" + std::string(name) + "\", type = \"" + conv + "\", " + options + "}";
  };
  return {
      "model.override=[{match = \"flat\", type = \"relu\"}, {match = \"conv?.pool\", type = \"" + pool +
          "\", kernel = [2]}" + layer("conv1", "features = 6, kernel = [5], padding = [2]") +
          layer("conv2", "features = 16, kernel = [5]") + layer("fc1", "features = 120, kernel = [5]") +
          layer("fc2", "features = 84, kernel = [1]") + layer("fc3", "features = 10, kernel = [1]") + "]",
      "model.insert=[{after = \"fc3\", name = \"logits\", type = \"flatten\"}, {after = \"fc1.act\", name = "
      "\"drop\", type = \"dropout\", p = 0.3}" +
          edits + "]",
      "precision.type=\"fp64\"",
      "run.steps=6",
      "run.eval_every=6",
      "run.eval_batches=2"};
}

struct Found {
  std::vector<double> losses;
  double val_loss = 0, val_accuracy = 0;
};

Found train(const std::vector<std::string>& sets) {
  const Scratch scratch;
  Found found;
  found.losses = losses_in(scratch, "lenet5.toml", sets);
  found.val_loss = std::stod(scratch.summary("val/loss"));
  found.val_accuracy = std::stod(scratch.summary("val/accuracy"));
  return found;
}

/// The same on a mesh: images and labels are sharded alike.
std::vector<std::string> in_parts(const std::string& mesh, const std::string& sharding) {
  const std::string node = "type = \"repartition\", " + sharding + "}";
  auto sets = all_convolutions("conv", "max_pool",
                               ", {after = \"image\", name = \"images\", " + node +
                                   ", {after = \"label\", name = \"labels\", " + node);
  sets.insert(sets.end(), {"parallel.grid=" + mesh, "transport.type=\"thread\""});
  return sets;
}

TEST(Samples, P13_LossesOfPartsOfABatchAreThoseOfOneRankAndP9_SoAreMasks) {
  const Found alone = train(all_convolutions("conv2d", "max_pool2d", ""));
  ASSERT_EQ(alone.losses.size(), 6u);
  EXPECT_LT(alone.losses.back(), alone.losses.front()) << "it learns";
  for (const auto& [mesh, sharding] : {std::pair{"[2]", "dims = [0], axes = [0]"},
                                       {"[3]", "dims = [0], axes = [0]"},
                                       {"[3]", "dims = [0], axes = [0], sizes = [13, 0, 3]"},
                                       {"[2, 2]", "dims = [0, 0], axes = [1, 0]"}}) {
    const Found found = train(in_parts(mesh, sharding));
    EXPECT_LE(worst(found.losses, alone.losses), 1e-10) << mesh << " " << sharding;
    EXPECT_NEAR(found.val_loss, alone.val_loss, 1e-10 * alone.val_loss) << mesh << " " << sharding;
    EXPECT_EQ(found.val_accuracy, alone.val_accuracy) << mesh << " " << sharding;
  }
}

TEST(Samples, P13_ReplicasOfAGridTrainLikeReplicasOfOneRank) {
  const auto with_replicas = [](std::vector<std::string> sets) {
    sets.insert(sets.end(), {"parallel.ranks=2", "transport.type=\"thread\"", "sync.type=\"ddp\""});
    return train(sets).losses;
  };
  const auto alone = with_replicas(all_convolutions("conv2d", "max_pool2d", ""));
  EXPECT_LE(worst(with_replicas(in_parts("[2]", "dims = [0], axes = [0]")), alone), 1e-10);
}

}  // namespace
}  // namespace tenon::integration::samples_run_test
