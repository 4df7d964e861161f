// A table whose rows are saved by priority, as one rank sees it: groups of rows that fail together, and the
// number of rows of each group that one save writes.
#pragma once

#include <tenon/recovery.hpp>

#include <cstdint>
#include <vector>

namespace tenon::recovery_cpr {

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
  table.quota.assign(static_cast<std::size_t>(table.groups()), 0);
  for (std::int64_t i = 0; i < table.held; ++i)
    ++table.quota[static_cast<std::size_t>(table.group_of(table.first + i))];
  for (std::int64_t& count : table.quota) count = (count + parts - 1) / parts;
  return table;
}

}  // namespace tenon::recovery_cpr
