// The tiers that a plan gives the row tables of a rank, and the facts of `tenon check` about tiers: bytes,
// rows in caches, and hits that the accesses to rows promise.
#pragma once

#include "loop/parts.hpp"
#include "tables/row_bands.hpp"
#include "tables/table_plan.hpp"

#include <tenon/files.hpp>
#include <tenon/parameter.hpp>
#include <tenon/registry.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

class TablePlanner {
 public:
  /// All outlive the planner.
  struct Setup {
    const config::CheckedRun& run;
    Parts& parts;  ///< gains the tiers of the plan
    Registry& registry;
    RankHost& host;
    FileSystem& files;
  };
  /// Plans where [tables] asks for it: a pure function of the configuration, the rank's shards and the record
  /// of accesses. Throws Error(kConfig) where the tables do not fit, or the record is of other tables.
  TablePlanner(const Setup& setup, std::span<const ParameterInfo> parameters);

  /// Null: no plan, or the table is in a [[tables.place]].
  const Part<Tier>* tier_of(std::string_view table) const;
  /// Empty without [tables].
  std::vector<std::string> facts() const;

 private:
  /// The rows of a table on this rank.
  struct Rows {
    std::string name;
    std::int64_t rows = 0, weight_bytes = 0, state_bytes = 0;  ///< bytes of a row
    int place = -1;                                            ///< in settings.places
    RowBands bands = {};                                       ///< accesses of a unit: see unit()
  };

  Rows rows_of(const ParameterInfo& info) const;
  void read_accesses(std::span<const ParameterInfo> parameters);
  void plan();
  const Part<Tier>* make_tier(const Rows& table, const TableHome& home);
  std::string tier_name(std::size_t budget) const;
  void add_places(std::vector<std::string>& lines) const;
  void add_plan(std::vector<std::string>& lines) const;
  std::string unit() const;

  Setup with_;
  const config::TableSettings& settings_;
  std::vector<Rows> tables_;
  std::string counted_;               ///< attempt whose record was read
  bool per_sample_ = true;            ///< accesses are those of a sample; else of a slot of the record
  std::vector<std::size_t> planned_;  ///< indices of tables_ that the plan places
  std::optional<TablePlan> plan_;
  std::map<std::string, const Part<Tier>*, std::less<>> tiers_;
};

}  // namespace tenon::train
