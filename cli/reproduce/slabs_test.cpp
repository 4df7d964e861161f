// Closed forms of slabs, on published numbers and by counting elements one by one; runs and refusals of the
// table [slabs].
#include "reproduce/slabs.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::reproduce {
namespace {

using ab::testing::fresh_folder;
using ab::testing::replaced;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SlabOperator carbon_dioxide() {
  return {.points = {262, 118, 64, 86},
          .modes = {16, 16, 12, 10},
          .sharded_dim = 1,
          .batch = 1,
          .width = 10,
          .layers = 4};
}

// SciAI4Industry, carbon dioxide: 72.5 MB of a whole spectrum, of which one rank in two keeps half.
TEST(SlabForms, AMoveIsAsLargeAsPublished) {
  const SlabOperator op = carbon_dioxide();
  EXPECT_EQ(move_elements(op, 1), 0);
  EXPECT_EQ(2 * 8 * move_elements(op, 2), 72499200);
  EXPECT_EQ(op.useful_ranks(), 32);
}

/// Elements whose rank before a move is not that after it.
std::int64_t moved_one_by_one(const SlabOperator& op, std::int64_t ranks) {
  const auto owner = [&](std::int64_t extent, std::int64_t at) {
    const auto offsets = balanced_offsets(extent, static_cast<int>(ranks));
    std::int64_t rank = 0;
    while (offsets[static_cast<std::size_t>(rank) + 1] <= at) ++rank;
    return rank;
  };
  std::int64_t rest = op.batch * op.width, moved = 0;
  for (int dim = 0; dim < static_cast<int>(op.points.size()); ++dim)
    if (dim != op.sharded_dim && dim != op.other()) rest *= op.kept(dim);
  const std::int64_t points = op.points[op.sharded_dim], modes = op.kept(op.other());
  for (std::int64_t p = 0; p < points; ++p)
    for (std::int64_t m = 0; m < modes; ++m) moved += owner(points, p) != owner(modes, m) ? rest : 0;
  return moved;
}

TEST(SlabForms, AMoveIsCountedElementByElement) {
  const SlabOperator cases[] = {
      {.points = {10, 7, 6, 5}, .modes = {5, 3, 2, 3}, .sharded_dim = 1, .batch = 2, .width = 3},
      {.points = {9, 10, 8}, .modes = {3, 4, 5}, .sharded_dim = 0, .width = 2},
      {.points = {11, 12}, .modes = {4, 5}, .sharded_dim = 0, .width = 5}};
  for (const SlabOperator& op : cases)
    for (std::int64_t ranks = 1; ranks <= 9; ++ranks)
      EXPECT_EQ(move_elements(op, ranks), moved_one_by_one(op, ranks)) << ranks;
}

TEST(SlabForms, AnUpdateMovesFourTimesPerLayer) {
  const SlabOperator op{.points = {64, 16, 8, 8},
                        .modes = {32, 8, 4, 3},
                        .sharded_dim = 1,
                        .width = 8,
                        .layers = 4,
                        .projection = 128};
  const std::vector<Exchange> list = exchanges(op, 8);
  // Even parts: each rank sends an eighth of the total.
  EXPECT_EQ(bytes_of_first(list, "moves"), 16 * move_elements(op, 8));
  // Gradients of 5 x 8, 4 times 8 x 8, 8 x 128 and 128 weights and of 8, 4 times 8, 128 and 1 biases: pieces
  // of 5, 8, 128, 16 and of 1, 1, 16, 1 numbers at rank 0.
  const std::int64_t sent = 2 * (35 + 4 * 56 + 896 + 112) + 2 * (7 + 4 * 7 + 112) + 7;
  EXPECT_EQ(bytes_of_first(list, "gradients"), 4 * sent);
  EXPECT_EQ(bytes_of_first(list, "sums"), 3 * 8 * (3 + 7));
  EXPECT_EQ(bytes_of_first(list, "norm"), 16);
  EXPECT_TRUE(exchanges(op, 1).empty());
  // 16 moves, two rounds of 14 gradients and 3 sums, 14 hops of the norm.
  const SlabLink latency{"", "", 1e30, 1.0}, bytes{"", "", 1.0, 0};
  EXPECT_NEAR(link_seconds(list, latency, Latencies::kOverlap), 16 + 28 + 6 + 14, 1e-9);
  EXPECT_NEAR(link_seconds(list, latency, Latencies::kAdd), 16 * 7 + 7 * 14 + (7 * 13 + 1) + 3 * (4 + 7) + 14,
              1e-9)
      << "a sum of 1 or 4 numbers has as many pieces";
  // If a sum has no even pieces, the busiest rank has a little more to do than rank 0.
  EXPECT_NEAR(link_seconds(list, bytes, Latencies::kOverlap), 1.0 * bytes_of_first(list), 150);
}

constexpr const char* kSlabStudy = R"(title = "t"
paper = "p"
question = "q"
base = "run.toml"
baseline = "weak"
[slabs]
cut = 1
measured = [1, 2]
counted = [1, 4]
predicted = [1, 8]
[[slabs.link]]
name = "l"
bandwidth = 1e9
latency = 1e-6
[[slabs.problem]]
arm = "weak"
size = "quick"
points = [8, 2, 4, 4]
modes = [4, 1, 2, 2]
of_one_rank = true
[[slabs.problem]]
arm = "weak"
size = "default"
points = [8, 2, 4, 4]
modes = [4, 1, 2, 2]
of_one_rank = true
[[slabs.problem]]
arm = "strong"
size = "quick"
points = [8, 16, 4, 4]
modes = [4, 4, 2, 2]
[[slabs.problem]]
arm = "strong"
size = "default"
points = [8, 16, 4, 4]
modes = [4, 4, 2, 2]
[size.quick]
steps = 4
seeds = [1]
[size.default]
steps = 4
seeds = [1]
[[arm]]
name = "weak"
set = ["model.width=8"]
[[arm]]
name = "strong"
)";

StudyFile slab_study(const std::string& text) {
  const std::string folder = fresh_folder("slabs"), path = folder + "/study.toml";
  ab::testing::write_text(folder + "/run.toml", "");
  ab::testing::write_text(path, text);
  return read_study(path);
}

TEST(SlabRuns, AWeakFieldGrowsAndAStrongOneIsShared) {
  const StudyFile study = slab_study(kSlabStudy);
  std::vector<std::string> names;
  for (const SlabRun& run : slab_runs(study, *study.size("quick"))) names.push_back(run.name());
  EXPECT_THAT(names, ElementsAre("weak.local.1", "weak.threads.2", "weak.virtual.4", "strong.local.1",
                                 "strong.local.2", "strong.local.4", "strong.local.8", "strong.threads.2",
                                 "strong.virtual.4"));
  const SlabProblem& weak = *study.as<Slabs>().problem("weak", "quick");
  EXPECT_THAT(weak.whole(4, 1).points, ElementsAre(8, 8, 4, 4));
  EXPECT_THAT(weak.whole(4, 1).modes, ElementsAre(4, 4, 2, 2));
  EXPECT_THAT(weak.local(4, 1).points, ElementsAre(8, 2, 4, 4));
  const SlabProblem& strong = *study.as<Slabs>().problem("strong", "quick");
  EXPECT_THAT(strong.whole(8, 1).points, ElementsAre(8, 16, 4, 4));
  EXPECT_THAT(strong.local(8, 1).points, ElementsAre(8, 2, 4, 4));
  EXPECT_THAT(strong.local(8, 1).modes, ElementsAre(4, 1, 2, 2)) << "at least one mode of either sign";

  const StudyFile runs = at_slabs(study, *study.size("quick"), "out/data");
  ASSERT_EQ(runs.arms.size(), 9u);
  const ab::Arm& arm = runs.arms[2].arm;
  EXPECT_EQ(arm.steps, 3);
  EXPECT_EQ(arm.set.front(), "model.width=8");
  EXPECT_THAT(arm.set,
              ::testing::IsSupersetOf({"data.inputs=[\"x=out/data/8x8x4x4.npy\"]",
                                       "data.shapes=[\"x=1x8x8x4x4\",\"y=1x8x8x4x4\"]",
                                       "model.modes=[4,4,2,2]", "parallel.grid=[4]", "device.threads=1"}));
  EXPECT_THAT(arm.set.back(),
              HasSubstr("transport.link={bandwidth=1000000000,latency=9.9999999999999995e-07}"));
}

TEST(SlabFile, WhatCannotBeIsRefusedWithItsPlace) {
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"cut = 1", "cut = 4", "cut"},
      {"cut = 1", "cuts = 1", "did you mean 'cut'?"},
      {"bandwidth = 1e9", "bandwith = 1e9", "did you mean 'bandwidth'?"},
      {"of_one_rank = true", "one_rank = true", "slabs.problem[0] has no option 'one_rank'"},
      {"predicted = [1, 8]", "predicted = [1, 6]",
       "slabs.problem[2].points: 16 points along dimension 1 do not form equal slabs for 6 ranks"},
      {"predicted = [1, 8]", "predicted = [1, 16]",
       "16 ranks share 8 modes along dimension 0: some would have none"},
      {"predicted = [1, 8]", "predicted = [8, 1]", "slabs.predicted: 1 follows 8; values must ascend"},
      {"predicted = [1, 8]", "predicted = []", "slabs.predicted: name at least one number of ranks"},
      {"points = [8, 2, 4, 4]\nmodes = [4, 1, 2, 2]", "points = [8, 2, 4, 4]\nmodes = [4, 1, 2]",
       "slabs.problem[0].modes: expected 4 numbers as in points, found 3"},
      {"points = [8, 2, 4, 4]\nmodes = [4, 1, 2, 2]", "points = [8, 2, 4, 4]\nmodes = [4, 2, 2, 2]",
       "dimension 1 has 2 points, and 2 modes: expected at most 1"},
      {"arm = \"weak\"\nsize = \"quick\"", "arm = \"weka\"\nsize = \"quick\"", "did you mean 'weak'?"},
      {"arm = \"weak\"\nsize = \"quick\"", "arm = \"weak\"\nsize = \"default\"",
       "arm 'weak' has two problems at size default"},
      {"[[slabs.link]]\nname = \"l\"\nbandwidth = 1e9\nlatency = 1e-6\n", "", "efficiency needs a link"},
  };
  for (const auto& [from, to, words] : cases) {
    try {
      slab_study(replaced(kSlabStudy, from, to));
      ADD_FAILURE() << to << " is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
}

ResolvedRun resolved_run(const std::string& toml) {
  ResolvedRun run;
  run.root = Config::parse(toml, "run.toml", {}).root();
  return run;
}

TEST(SlabRuns, AnOperatorThatTheFormsDoNotKnowIsRefused) {
  const StudyFile study = slab_study(kSlabStudy);
  const Size& size = *study.size("quick");
  const std::string known = R"([model]
type = "fno"
coordinates = true
norm = "none"
padding = [0.0]
width = 8
layers = 3
projection = 16
[precision]
type = "fp32"
[parallel]
ranks = 1
[run]
accumulate = 1
)";
  const SlabRun run{"strong", SlabKind::kVirtual, 4};
  const SlabOperator op = operator_of(study, size, run, resolved_run(known));
  EXPECT_EQ(op.width, 8);
  EXPECT_EQ(op.layers, 3);
  EXPECT_EQ(op.projection, 16);
  EXPECT_THAT(op.points, ElementsAre(8, 16, 4, 4));
  const struct {
    const char *from, *to, *words;
  } cases[] = {{"\"fno\"", "\"mlp\"", "need model.type = \"fno\", found \"mlp\""},
               {"padding = [0.0]", "padding = [0.25]", "need model.padding = [0], found [0.25]"},
               {"\"fp32\"", "\"bf16\"", "need precision.type = \"fp32\", found \"bf16\""},
               {"ranks = 1", "ranks = 2", "need parallel.ranks = 1, found 2"}};
  for (const auto& [from, to, words] : cases) {
    try {
      operator_of(study, size, run, resolved_run(replaced(known, from, to)));
      ADD_FAILURE() << to << " is not refused";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("arm 'strong': closed forms of slabs"));
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
}

}  // namespace
}  // namespace tenon::reproduce
