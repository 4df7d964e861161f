// Ranks of a grid as threads of this process.
#pragma once

#include "cases.hpp"

#include <tenon/testing/grid_ranks.hpp>

#include <functional>

namespace model_parallel {

/// An OnGrid (trials.hpp).
inline void on_threads(const std::vector<int>& grid, const std::function<void(ModelGrid&)>& body) {
  tenon::testing::GridRanks world(grid);
  EXPECT_EQ(world.run(body), no_errors(world.size()));
}

}  // namespace model_parallel
