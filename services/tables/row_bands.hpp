// Accesses to the rows of a table, from the most frequent ones on: by a power law, or as the observer
// `tables` counted them. It is all that a plan of tiers knows about accesses.
#pragma once

#include "tables/table_record.hpp"

#include <cstdint>
#include <vector>

namespace tenon::train {

/// Rows that are read equally often.
struct RowBand {
  std::int64_t rows = 0;
  double accesses = 0;  ///< of all of them
};

/// All rows of a table, or of a shard of it; accesses per row fall from band to band. Rows without accesses
/// may be left out.
using RowBands = std::vector<RowBand>;

/// The k-th most frequent of `rows` rows is read k^-exponent times as often as the first; all accesses are 1.
/// The first rows have bands of their own, later bands grow with k: hits of a cache that ends within a band
/// are off by less than 0.1 % of them.
RowBands power_law_bands(std::int64_t rows, double exponent);

/// Accesses to rows [first, last) of a recorded table. The hottest rows that the record names, its hottest
/// 1 % and 10 % and its touched rows have exactly their recorded accesses; between these, accesses fall as
/// 1 / k. A range that no rank of the recorded run held gets the whole table's accesses in the proportion of
/// its rows.
RowBands recorded_bands(const TableFacts& table, std::int64_t first, std::int64_t last);

/// Accesses to the `rows` most frequent rows.
double hottest_accesses(const RowBands& bands, std::int64_t rows);

}  // namespace tenon::train
