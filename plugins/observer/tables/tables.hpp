// Observer `tables` (contract observer/1): access counts of the rows of the model's tables, the rank that
// holds each row, and what the tiers of the tables did. Every rank writes tables.rank<r>.json for its own
// rows; `tenon inspect RUN --tables` shows them. Accesses are those of applied slots since this start of the
// run.
#pragma once

#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/reuse_distance.hpp>
#include <tenon/tier.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::tables {

// Read counts of each row of a range, four bytes a row, and statistics of them.

struct HotRow {
  std::int64_t row = 0;
  std::uint32_t accesses = 0;
};

struct AccessFacts {
  std::uint64_t accesses = 0;
  std::int64_t touched = 0;          ///< rows with at least one access
  std::vector<HotRow> hottest = {};  ///< most accesses first, then the smaller row
  /// Share of all accesses that hit the hottest 1 % and 10 % of the rows, rounded up to whole rows. 0 without
  /// accesses.
  double share_of_1_percent = 0, share_of_10_percent = 0;
};

class RowCounts {
 public:
  /// Rows [first, last).
  RowCounts(std::int64_t first, std::int64_t last);

  /// A row's count saturates at 2^32 - 1; the total number of accesses keeps counting. Throws Error(kRun) for
  /// a row outside the range. Does not allocate.
  void add(std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts);

  std::int64_t first() const { return first_; }
  std::int64_t last() const { return first_ + rows(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(counts_.size()); }
  std::int64_t touched() const { return touched_; }
  /// Returns the statistics with the `most` hottest rows. Temporarily copies the counts above zero.
  AccessFacts facts(std::size_t most) const;

 private:
  std::vector<HotRow> hottest(std::size_t most) const;

  std::int64_t first_;
  std::vector<std::uint32_t> counts_;
  std::uint64_t accesses_ = 0;
  std::int64_t touched_ = 0;
};

// Hits that a cache of the rows used last would have had, at every size of a list.

struct ReuseFacts {
  std::int64_t accesses = 0, first = 0;  ///< all, and those of a row that had not been accessed before
  std::vector<std::pair<std::int64_t, std::int64_t>> hits = {};  ///< rows of the cache, and its hits
};

/// 1, 2, 3, ... `rows`, each about a fifth larger than the one before; empty without rows.
std::vector<std::int64_t> cache_sizes(std::int64_t rows);
ReuseFacts reuse_facts(const ReuseDistances& distances, std::int64_t rows);

// The accesses to a rank's tables as JSON: tables.rank<r>.json of a run folder. README.md lists the keys.

/// A level of the tier of a table, or of a state beside it.
struct TierRecord {
  std::string state;  ///< "optimizer.sum"; empty: the weights
  TierCount count;
};

/// A table and the shard of it that this rank owns.
struct TableRecord {
  std::string name, dtype;
  std::int64_t rows = 0, width = 0;  ///< of the whole table
  std::int64_t bytes = 0;            ///< of the whole table
  std::int64_t first = 0, last = 0;  ///< rows of this rank
  AccessFacts facts = {};
  std::vector<TierRecord> tiers = {};  ///< from the outermost level on, the weights first
  std::optional<ReuseFacts> reuse = {};
};

struct RankRecord {
  int rank = 0, ranks = 1;
  std::int64_t first_slot = 0;  ///< first counted slot: later than 0 in a resumed run
  std::int64_t slots = 0;       ///< applied slots since then
  std::int64_t samples = 0;     ///< of all replicas in these slots
  std::int64_t named_rows = 0;  ///< limit on the hottest rows per table
  std::vector<TableRecord> tables = {};
};

std::string json(const RankRecord& record);

class Tables final : public Observer, public RowObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("hottest", "10")
          .between(0, 1000)
          .in_unit("rows")
          .doc_text("most frequent rows listed per table"),
      option::integer("every", "0")
          .at_least(0)
          .in_unit("slots")
          .doc_text("slots between writes of the file and of the metrics; 0 = only at the end"),
      option::boolean("reuse", "false")
          .doc_text("find the hits of a cache of any size, at 24 bytes of memory per row"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "tables",
      .summary = "row tables: how many rows were read, the most frequent ones, and hits of caches",
      .options = kOptions};

  struct Settings {
    std::size_t hottest = 10;
    std::int64_t every = 0;
    bool reuse = false;
  };
  Tables(const Options& options, Host& host);
  /// `counts` is asked once the tables are known; it may answer null.
  Tables(const Settings& settings, MetricSink& sink, std::function<TableCounts*()> counts,
         std::unique_ptr<FileSystem> files);

  bool every_rank() const override { return true; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view status, std::string_view message) override;
  void* query(std::string_view interface_id) override;

  void on_tables(std::span<const ParameterInfo> tables) override;
  void on_accesses(int parameter, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override;

 private:
  void write();
  void add_metrics(std::int64_t step);

  struct Table {
    int parameter;
    TableRecord record;
    RowCounts counts;
    std::unique_ptr<ReuseDistances> reuse;
  };
  /// Sums over all tables: of their weights the hits and misses of the outermost caches and the misses of all
  /// caches, and the bytes that moved between levels, of weights and state.
  struct CacheSums {
    std::int64_t hits = 0, outermost_misses = 0, misses = 0, moved_bytes = 0, samples = 0;
    bool has_levels = false, has_caches = false;
  };
  CacheSums cache_sums() const;

  Settings settings_;
  MetricSink& sink_;
  std::function<TableCounts*()> find_counts_;
  TableCounts* counts_ = nullptr;
  std::unique_ptr<FileSystem> files_;
  std::string path_;
  RankRecord record_;
  std::vector<Table> tables_;
  std::int64_t earlier_samples_ = -1;  ///< of slots before the first that counts; -1: not known yet
  CacheSums reported_;
};

}  // namespace tenon::tables
