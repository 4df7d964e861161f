// Observer `tables` (contract observer/1): access counts of the rows of the model's tables, and the rank that
// holds each row. Every rank writes tables.rank<r>.json for its own rows; `tenon inspect RUN --tables` shows
// them. Only applied slots since this start of the run count.
#pragma once

#include "report.hpp"
#include "row_counts.hpp"

#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::tables {

class Tables final : public Observer, public RowObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("hottest", "10")
          .between(0, 1000)
          .in_unit("rows")
          .doc_text("rows that are named per table"),
      option::integer("every", "0")
          .at_least(0)
          .in_unit("slots")
          .doc_text("how often the file is written and the metric touched_share taken; 0 = at the end alone"),
  };
  static constexpr ComponentInfo kInfo{.id = "tables",
                                       .summary = "rows of tables: how many were read, and the hottest",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

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
