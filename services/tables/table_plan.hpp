// Places the row tables of a rank in tiers of memory of limited size: a pure function.
//
// The model. Rows are read independently, each as often as its band says. A table lies whole in one tier, its
// home, and a faster tier may hold a cache of it, which keeps the most frequent of the rows that no faster
// one keeps. Bytes of both count. Tiers have an order and no speeds, so a plan is better if the first tier
// serves more accesses, then if the first two do, and so on; of equal ones, that with fewer bytes.
//
// For given homes, caches that take rows by accesses per byte, tier after tier, are best up to a row of each
// tier: what rows of unequal size leave of a budget. Homes are searched: all of them where there are few
// tables, else from the slowest tiers and from the fastest by changes of one home or of two for as long as
// that helps, which need not end at the best; `bound` says what no plan exceeds.
#pragma once

#include "tables/row_bands.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

struct PlannedTable {
  std::string name;
  std::int64_t rows = 0;       ///< of this rank
  std::int64_t row_bytes = 0;  ///< of weights and optimizer rows
  RowBands bands = {};
};

struct PlannedTier {
  std::string name;  ///< for messages
  std::int64_t bytes = 0;
};

struct TableHome {
  std::size_t home = 0;
  std::vector<std::int64_t> cached = {};  ///< rows in a cache, for each tier before the home
  std::vector<double> served = {};        ///< accesses, for each tier
};

struct TablePlan {
  std::vector<TableHome> tables = {};    ///< in the order of the tables
  std::vector<std::int64_t> bytes = {};  ///< for each tier
  std::vector<double> served = {};       ///< accesses, for each tier
  std::vector<double> bound = {};  ///< accesses that this tier and those before it serve in no plan more
  bool searched_all = false;       ///< the best plan of the model
};

struct PlanSearch {
  std::size_t most_homes = 4096;  ///< all ways to choose homes are tried where there are at most as many
};

/// Tiers from the fastest on. Ties are resolved by the names of tables, so that the order of `tables` does
/// not matter. Throws Error(kConfig) with sizes for a tier that is too small for one row of each table, and
/// where the tables do not fit.
TablePlan plan_tables(std::span<const PlannedTable> tables, std::span<const PlannedTier> tiers,
                      const PlanSearch& search = {});

}  // namespace tenon::train
