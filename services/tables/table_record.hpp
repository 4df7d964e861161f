// Files of the observer `tables` in a run's folder, one per rank, and the same tables without the division
// into ranks. Serves `tenon inspect RUN --tables` and plans of tables over tiers.
#pragma once

#include <tenon/files.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

struct HotRow {
  std::int64_t row = 0;
  std::uint64_t accesses = 0;
};

/// A rank's shard of a table.
struct TablePart {
  int rank = 0;
  std::int64_t first = 0, last = 0;  ///< rows
  std::uint64_t accesses = 0;
  std::int64_t touched = 0;
  double share_of_1_percent = 0, share_of_10_percent = 0;
  std::vector<HotRow> hottest = {};
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
};

struct RunTables {
  std::string folder;
  int ranks = 1;
  std::vector<int> missing = {};  ///< ranks without a file
  std::int64_t first_slot = 0, slots = 0;
  std::vector<TableFacts> tables = {};
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
