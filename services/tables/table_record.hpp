// Files of the observer `tables` in a run's folder, one per rank, and the same tables without the division
// into ranks. Serves `tenon inspect RUN --tables` and plans of tables over tiers.
#pragma once

#include <tenon/files.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

struct HotRow {
  std::int64_t row = 0;
  std::uint64_t accesses = 0;
};

/// A level of the tier of a table, or of a state beside it.
struct TierFacts {
  std::string state;  ///< "optimizer.sum"; empty: the weights
  std::string tier;   ///< "cached/dram"
  std::int64_t reads = 0, writes = 0, hits = 0, misses = 0, ahead = 0, evictions = 0, write_backs = 0;
  std::int64_t bytes_in = 0, bytes_out = 0;
  double stall_seconds = 0;
};

/// Hits that a cache of the rows used last would have had; the sizes ascend.
struct ReuseFacts {
  std::int64_t accesses = 0, first = 0;  ///< all, and those of a row that had not been accessed before
  struct Point {
    std::int64_t rows = 0, hits = 0;
  };
  std::vector<Point> lru = {};
};

/// A rank's shard of a table.
struct TablePart {
  int rank = 0;
  std::int64_t first = 0, last = 0;  ///< rows
  std::uint64_t accesses = 0;
  std::int64_t touched = 0;
  double share_of_1_percent = 0, share_of_10_percent = 0;
  std::vector<HotRow> hottest = {};
  std::vector<TierFacts> tiers = {};  ///< the weights first, each from the outermost level on
  std::optional<ReuseFacts> reuse = {};
};

struct TableFacts {
  std::string name, dtype;
  std::int64_t rows = 0, width = 0, bytes = 0;
  /// Accesses to all rows; if ranks hold copies of the same rows, those of the lowest rank.
  std::uint64_t accesses = 0;
  std::int64_t touched = 0;
  std::vector<HotRow> hottest = {};
  std::vector<TablePart> placement = {};  ///< by rank
};

/// One file.
struct RankTables {
  int rank = 0, ranks = 1;
  std::int64_t first_slot = 0, slots = 0;
  std::int64_t named_rows = 0;          ///< at most this many hottest rows per table
  std::vector<TableFacts> tables = {};  ///< each with one part
  std::int64_t samples = 0;             ///< of all replicas in the slots; 0 in records of earlier versions
};

struct RunTables {
  std::string folder;
  int ranks = 1;
  std::vector<int> missing = {};  ///< ranks without a file
  std::int64_t first_slot = 0, slots = 0;
  std::vector<TableFacts> tables = {};
  std::int64_t samples = 0;
};

/// Throws Error(kRun) that begins with `where` for a text that is not such a file.
RankTables parse_rank_tables(std::string_view text, const std::string& where);
/// Joins files of ranks in ascending order, at least one, into one view. Throws Error(kRun) if they disagree.
RunTables join(const std::string& folder, const std::vector<RankTables>& ranks);
/// Reads all files of an attempt. Throws Error(kConfig) that says what to add when it has none.
RunTables read_tables(FileSystem& files, const std::string& folder);

std::string tables_text(const RunTables& run);
std::string tables_json(const RunTables& run);

}  // namespace tenon::train
