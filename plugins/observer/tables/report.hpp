// The accesses to a rank's tables as JSON: tables.rank<r>.json of a run folder. README.md lists the keys.
#pragma once

#include "row_counts.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::tables {

/// A table and the shard of it that this rank owns.
struct TableRecord {
  std::string name, dtype;
  std::int64_t rows = 0, width = 0;  ///< of the whole table
  std::int64_t bytes = 0;            ///< of the whole table
  std::int64_t first = 0, last = 0;  ///< rows of this rank
  AccessFacts facts = {};
};

struct RankRecord {
  int rank = 0, ranks = 1;
  std::int64_t first_slot = 0;  ///< first counted slot: later than 0 in a resumed run
  std::int64_t slots = 0;       ///< applied slots since then
  std::int64_t named_rows = 0;  ///< limit on the hottest rows per table
  std::vector<TableRecord> tables = {};
};

std::string json(const RankRecord& record);

}  // namespace tenon::tables
