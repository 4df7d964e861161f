// Observer `tables` (contract observer/1): access counts of the rows of the model's tables, and the rank that
// holds each row. Every rank writes tables.rank<r>.json for its own rows; `tenon inspect RUN --tables` shows
// them. Only applied slots since this start of the run count.
#pragma once

#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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

// The accesses to a rank's tables as JSON: tables.rank<r>.json of a run folder. README.md lists the keys.

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
          .doc_text("slots between writes of the file and of the metric touched_share; 0 = only at the end"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "tables",
      .summary = "row tables: how many rows were read, and the most frequent ones",
      .options = kOptions};

  Tables(const Options& options, Host& host);
  Tables(std::size_t hottest, std::int64_t every, MetricSink& sink, std::unique_ptr<FileSystem> files);

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

  struct Table {
    int parameter;
    TableRecord record;
    RowCounts counts;
  };

  std::size_t hottest_;
  std::int64_t every_;
  MetricSink& sink_;
  std::unique_ptr<FileSystem> files_;
  std::string path_;
  RankRecord record_;
  std::vector<Table> tables_;
};

}  // namespace tenon::tables
