// The tables whose rows are saved by priority, and the trackers that select those rows: by reads (MFU), by a
// sample of reads (SSU), or by distance from the saved values (SCAR).
#pragma once

#include <tenon/random.hpp>
#include <tenon/recovery.hpp>
#include <tenon/state.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::recovery_cpr {

/// A table whose rows are saved by priority, as one rank sees it: groups of rows that fail together, and the
/// number of rows of each group that one save writes.
struct TrackedTable {
  int parameter = 0;
  const RowTable* rows = nullptr;
  std::int64_t first = 0, held = 0;  ///< rows [first, first + held) of this rank
  std::vector<std::int64_t> quota;   ///< by group: ceil(rows of the group here / parts)
  FailureDomains domains;

  /// Groups are the failure domains, or the rank itself if each rank is one.
  int groups() const { return domains.hashed ? domains.shards : 1; }
  int group_of(std::int64_t row) const { return domains.hashed ? shard_of_row(domains, parameter, row) : 0; }
};

inline TrackedTable make_tracked(const ParameterInfo& info, const RowTable& rows,
                                 const FailureDomains& domains, std::int64_t parts) {
  TrackedTable table;
  table.parameter = info.index;
  table.rows = &rows;
  table.first = rows.owned_first();
  table.held = rows.owned_last() - rows.owned_first();
  table.domains = domains;
  table.quota.assign(table.groups(), 0);
  for (std::int64_t i = 0; i < table.held; ++i) ++table.quota[table.group_of(table.first + i)];
  for (std::int64_t& count : table.quota) count = (count + parts - 1) / parts;
  return table;
}

/// Selects the rows that a priority save writes. One tracker serves all tables saved by priority. Selection
/// is per failure group and breaks ties by row, so that two runs save the same rows.
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

/// Most frequently used: the rows read most often since each was saved (CPR-MFU). 4 bytes per row.
class Mfu final : public Tracker {
 public:
  explicit Mfu(const std::vector<TrackedTable>& tables);
  void accessed(std::size_t table, std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts,
                std::int64_t slot) override;
  std::vector<std::int64_t> select(std::size_t table) override;
  void saved_all() override;
  void answered(bool committed) override;
  void restored(int group) override;
  void state(StateVisitor& visitor) override;
  std::int64_t bytes() const override;

  /// Returns the reads of a row since it was saved; saturates at the largest number.
  std::uint32_t count(std::size_t table, std::int64_t row) const;

 private:
  struct Saved {
    std::size_t table = 0, row = 0;
    std::uint32_t count = 0;
  };
  static void add(std::uint32_t& count, std::uint32_t more);

  const std::vector<TrackedTable>& tables_;
  std::vector<std::vector<std::uint32_t>> counts_;
  std::vector<Saved> unanswered_;  ///< counters zeroed by saves whose outcome is pending
};

/// Sub-sampled used: a short list of rows that were read, fed by every second access on average, with random
/// eviction (CPR-SSU). 4 bytes per place of the list and one bit per row.
class Ssu final : public Tracker {
 public:
  Ssu(const std::vector<TrackedTable>& tables, std::uint64_t seed);
  void accessed(std::size_t table, std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts,
                std::int64_t slot) override;
  std::vector<std::int64_t> select(std::size_t table) override;
  void saved_all() override;
  void answered(bool committed) override;
  void restored(int group) override;
  void state(StateVisitor& visitor) override;
  std::int64_t bytes() const override;

  /// Returns the rows on the list of one group, unordered.
  std::vector<std::int64_t> listed(std::size_t table, int group) const;

 private:
  /// Places [0, used) of a list hold rows, relative to the table's first one.
  struct List {
    std::vector<std::uint32_t> places;
    std::int64_t used = 0;
  };
  struct Table {
    std::vector<List> groups;
    std::vector<bool> listed;  ///< by row
  };
  void insert(std::size_t table, int group, std::uint32_t row);
  void forget(Table& table, List& list);

  const std::vector<TrackedTable>& defined_;
  std::vector<Table> tables_;
  RandomKey sampling_, eviction_;
  std::int64_t evictions_ = 0;
  std::vector<std::int64_t> numbers_;  ///< content of state(): evictions, then places used
  struct Saved {
    std::size_t table = 0;
    int group = 0;
    std::uint32_t row = 0;
  };
  std::vector<Saved> unanswered_;
};

/// Rows with the largest distance from their saved values (SCAR, arXiv 1810.07354, as CPR uses it). Needs a
/// second copy of every tracked table.
class Scar final : public Tracker {
 public:
  explicit Scar(const std::vector<TrackedTable>& tables);
  void accessed(std::size_t, std::span<const std::int64_t>, std::span<const std::uint32_t>,
                std::int64_t) override {}
  std::vector<std::int64_t> select(std::size_t table) override;
  void saved_all() override;
  void answered(bool committed) override;
  void restored(int group) override;
  void state(StateVisitor& visitor) override;
  std::int64_t bytes() const override;

  /// Returns the saved value of a row: width numbers.
  std::span<const float> saved(std::size_t table, std::int64_t row) const;

 private:
  struct Copy {
    std::vector<float> values;
    std::int64_t width = 0;
  };
  struct Saved {
    std::size_t table = 0;
    std::int64_t row = 0;
    std::vector<float> before;
  };
  /// Copies the rows' current values; keeps the previous ones if `undoable`.
  void take(std::size_t table, std::span<const std::int64_t> rows, bool undoable);
  void take_all();

  const std::vector<TrackedTable>& tables_;
  std::vector<Copy> copies_;
  std::vector<Saved> unanswered_;
  std::vector<Copy> before_all_;  ///< while a complete save is pending
};

}  // namespace tenon::recovery_cpr
