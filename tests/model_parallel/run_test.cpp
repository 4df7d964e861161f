// Whole runs on a mesh: a sequential model that TOML alone distributes over ranks trains the weights of
// one rank, and a layer that needs unsharded inputs refuses shards.
#include "run_program.hpp"

namespace tenon::integration::run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The map between the two products of the perceptron is sharded over both axes of the mesh, unevenly along
/// one.
constexpr const char* kSpread = R"(
[[model.insert]]
after = "transformer.h.0.mlp.c_fc"
name = "spread"
type = "repartition"
dims = [2, 1]
axes = [0, 1]
)";
constexpr const char* kJoin = R"(
[[model.insert]]
after = "transformer.h.0.mlp.act"
name = "join"
type = "repartition"
)";

std::string on_grid(const std::string& mesh, const std::string& edits) {
  return std::string(Scratch::kRun) + "\n[parallel]\ngrid = " + mesh +
         "\n\n[transport]\ntype = \"thread\"\n" + edits;
}

std::string weights_on(const std::string& mesh) {
  const Scratch scratch;
  write_file(scratch / "run.toml", on_grid(mesh, std::string(kSpread) + kJoin));
  const Ended ended = scratch.train();
  EXPECT_EQ(ended.status, 0) << ended.err;
  return scratch.summary("weights_hash");
}

TEST(MeshRun, P4_PartsOfAMapTrainTheWeightsOfOneRankBitForBit) {
  const std::string alone = weights_on("[1, 1]");
  EXPECT_THAT(alone, HasSubstr("\"")) << "a run on one rank has a hash";
  EXPECT_EQ(weights_on("[2, 2]"), alone);
  EXPECT_EQ(weights_on("[3, 1]"), alone);
}

TEST(MeshRun, ALayerOfWholeValuesRefusesPartsAndSaysWhatToDo) {
  const Scratch scratch;
  write_file(scratch / "run.toml", "extends = \"" TENON_SOURCE_DIR
                                   "/configs/base/lenet5.toml\"\n[run]\nsteps = 1\n[parallel]\n"
                                   "grid = [2, 1]\n[transport]\ntype = \"thread\"\n"
                                   "[[model.insert]]\nafter = \"conv1\"\nname = \"apart\"\n"
                                   "type = \"repartition\"\ndims = [0]\naxes = [0]\n");
  const Ended ended = scratch.train();
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("'conv1.pool' (max_pool2d) needs unsharded inputs"),
                    HasSubstr("'conv1.act' is sharded over the mesh: [64, 6, 28, 28], dimension 0 sharded "
                              "over axis 0 at 0, 32, 64"),
                    HasSubstr("Put a node of type 'repartition' before it")));
}

TEST(MeshRun, OptionsThatDoNotFitTheGridAreRefusedOnAllRanksAlike) {
  const std::pair<const char*, const char*> cases[] = {
      {"dims = [2, 1]\naxes = [0]", "dims and axes must be equally long, found 2 and 1"},
      {"dims = [3]\naxes = [0]", "dimension 3 is to be sharded, but the value is [2, 16, 64]"},
      {"dims = [2]\naxes = [2]", "axis 2 of the mesh is to shard dimension 2, but parallel.grid has 2 axes"},
      {"dims = [2]\naxes = [0]\nsizes = [60, 5]",
       "sizes must be 2 numbers that add up to 64, found 2 that add up to 65"},
      {"dims = [2, 1]\naxes = [0, 0]", "axis 0 of the mesh is used twice"},
  };
  for (const auto& [options, words] : cases) {
    const Scratch scratch;
    write_file(
        scratch / "run.toml",
        on_grid("[2, 1]", std::string("\n[[model.insert]]\nafter = \"transformer.h.0.mlp.c_fc\"\nname = "
                                      "\"spread\"\ntype = \"repartition\"\n") +
                              options + "\n" + kJoin));
    const Ended ended = scratch.train();
    EXPECT_EQ(ended.status, 2) << options;
    EXPECT_THAT(ended.err, AllOf(HasSubstr("layer 'spread': "), HasSubstr(words)));
  }
}

}  // namespace
}  // namespace tenon::integration::run_test
