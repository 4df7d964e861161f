// Selects the rows that a priority save writes. One tracker serves all tables saved by priority. Selection is
// per failure group and breaks ties by row, so that two runs save the same rows.
#pragma once

#include "tracked_table.hpp"

#include <tenon/state.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::recovery_cpr {

class Tracker {
 public:
  virtual ~Tracker();
  /// Records the unique rows of a table that slot `slot` read, and how often.
  virtual void accessed(std::size_t table, std::span<const std::int64_t> ids,
                        std::span<const std::uint32_t> counts, std::int64_t slot) = 0;
  /// Selects the rows of `table` to save now, ascending, at most the quota of each group. They count as
  /// saved.
  virtual std::vector<std::int64_t> select(std::size_t table) = 0;
  /// All rows of all tables are saved now.
  virtual void saved_all() = 0;
  /// Reports the outcome of the selections since the last call: committed, or failed and counted as not
  /// saved.
  virtual void answered(bool committed) = 0;
  /// Rows of `group` have their last saved values again: none is unsaved.
  virtual void restored(int group) = 0;
  /// Called with the weights of the checkpoint.
  virtual void state(StateVisitor& visitor) = 0;
  /// Memory in addition to the tables.
  virtual std::int64_t bytes() const = 0;
};

/// Creates "mfu", "ssu" or "scar"; null for "vanilla", which saves everything. `tables` must outlive it.
std::unique_ptr<Tracker> make_tracker(std::string_view name, const std::vector<TrackedTable>& tables,
                                      std::uint64_t seed);

}  // namespace tenon::recovery_cpr
