// Layouts of blocks while each dimension is transformed: those of the published forms, and grids of any
// shape.
#include "stages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::fno {
namespace {

using Extents = std::vector<std::int64_t>;

/// [1, 1, points...] with the given sharding, balanced.
Layout sharded(const Extents& points, const std::vector<std::pair<int, std::vector<int>>>& shardings,
               const std::vector<int>& grid) {
  Extents extents{1, 1};
  extents.insert(extents.end(), points.begin(), points.end());
  Layout layout{Shape(std::span<const std::int64_t>(extents))};
  for (const auto& [dim, axes] : shardings) {
    int parts = 1;
    for (const int axis : axes) parts *= grid[axis];
    layout.sharding.push_back({dim, axes, balanced_offsets(layout.shape[dim], parts)});
  }
  return layout;
}

/// "5: 2 by 0 2, 3 by 1 3; 4: ...": the sharding while each dimension is transformed.
std::string text(const std::vector<Stage>& list) {
  std::string out;
  for (const Stage& stage : list) {
    out += (out.empty() ? "" : "; ") + std::to_string(stage.dim) + ":";
    for (const DimSharding& one : stage.before.sharding) {
      out += " " + std::to_string(one.dim) + " by";
      for (const int axis : one.axes) out += " " + std::to_string(axis);
    }
  }
  return out;
}

TEST(Stages, P11_PencilsLieAsPublished) {
  const std::vector<int> grid{2, 3, 2, 2};
  const Layout four = sharded({8, 9, 10, 12}, {{2, {0}}, {3, {1}}, {4, {2}}, {5, {3}}}, grid);
  EXPECT_EQ(text(stages(four, Extents{4, 4, 4, 3}, Form::kPencil, grid, "")),
            "5: 2 by 0 2 3 by 1 3; 4: 2 by 0 2 3 by 1 3; 3: 4 by 0 2 5 by 1 3; 2: 4 by 0 2 5 by 1 3");
  const Layout three = sharded({8, 9, 12}, {{2, {0}}, {3, {1}}, {4, {2}}}, grid);
  EXPECT_EQ(text(stages(three, Extents{4, 4, 3}, Form::kPencil, grid, "")),
            "4: 2 by 0 2 3 by 1; 3: 4 by 0 2 1; 2: 4 by 0 2 1");
  const Layout two = sharded({8, 12}, {{2, {0}}, {3, {1}}}, grid);
  EXPECT_EQ(text(stages(two, Extents{4, 3}, Form::kPencil, grid, "")), "3: 2 by 0 1; 2: 3 by 0 1");
  EXPECT_EQ(text(stages(sharded({12}, {{2, {0}}}, grid), Extents{3}, Form::kPencil, grid, "")), "2:")
      << "one dimension becomes copies";
}

TEST(Stages, P11_SlabsLieAsPublished) {
  const std::vector<int> grid{4};
  const Layout x = sharded({8, 9, 10, 12}, {{3, {0}}}, grid);
  EXPECT_EQ(text(stages(x, Extents{4, 4, 4, 3}, Form::kSlab, grid, "")),
            "5: 3 by 0; 4: 3 by 0; 2: 3 by 0; 3: 2 by 0");
  EXPECT_EQ(text(stages(x, Extents{4, 4, 4, 3}, Form::kPencil, grid, "")),
            "5: 3 by 0; 4: 3 by 0; 3: 5 by 0; 2: 5 by 0");
  try {
    stages(sharded({8, 12}, {{3, {0}}}, grid), Extents{4, 3}, Form::kSlab, grid, "layer 'a'");
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("layer 'a': slabs need the last dimension unsharded, "
                                                   "found [1, 1, 8, 12], dimension 3 sharded over axis 0"));
  }
}

// Other dimensions keep their sharding: batches sharded over the grid, and uneven shards.
TEST(Stages, OnlyDimensionsOfPointsMove) {
  const std::vector<int> grid{2, 2};
  Layout x = sharded({6, 8}, {{2, {1}}}, grid);
  x.shape[0] = 5;
  x.sharding[0].offsets = {0, 1, 6};
  x.sharding.push_back({0, {0}, {0, 5, 5}});
  const auto list = stages(x, Extents{4, 3}, Form::kPencil, grid, "");
  ASSERT_EQ(text(list), "3: 2 by 1 0 by 0; 2: 0 by 0 3 by 1");
  EXPECT_EQ(list[0].before.sharding[0].offsets, (Extents{0, 1, 6})) << "nothing moves before the first step";
  EXPECT_EQ(list[1].before.sharding[0].offsets, (Extents{0, 5, 5}));
  EXPECT_EQ(list[1].before.sharding[1].offsets, (Extents{0, 2, 3}));
  EXPECT_EQ(list[1].before.shape, (Shape{5, 1, 6, 3}));
}

}  // namespace
}  // namespace tenon::fno
