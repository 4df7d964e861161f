// Event handlers of tables.hpp.
#include "tables.hpp"

#include <algorithm>

namespace tenon::tables {

Tables::Tables(const Options& options, Host& host)
    : Tables(static_cast<std::size_t>(options.integer("hottest")), options.integer("every"),
             *static_cast<MetricSink*>(host.query(MetricSink::kId)), make_posix_files()) {}

Tables::Tables(std::size_t hottest, std::int64_t every, MetricSink& sink, std::unique_ptr<FileSystem> files)
    : hottest_(hottest), every_(every), sink_(sink), files_(std::move(files)) {}

void* Tables::query(std::string_view interface_id) {
  return interface_id == RowObserver::kId ? static_cast<RowObserver*>(this) : nullptr;
}

void Tables::on_start(const RunInfo& info) {
  record_ = {.rank = info.rank,
             .ranks = info.ranks,
             .first_slot = info.first_slot,
             .named_rows = static_cast<std::int64_t>(hottest_)};
  path_ = info.folder + "/tables.rank" + std::to_string(info.rank) + ".json";
}

void Tables::on_tables(std::span<const ParameterInfo> tables) {
  for (const ParameterInfo& info : tables) {
    TableRecord record{.name = info.spec.name, .dtype = std::string(dtype_name(info.spec.dtype))};
    record.rows = info.spec.shape[0];
    record.width = record.rows == 0 ? 0 : info.spec.shape.elements() / record.rows;
    record.bytes = dtype_bytes(info.spec.dtype, info.spec.shape.elements());
    record.first = info.offset.rank() == 0 ? 0 : info.offset[0];
    record.last = record.first + info.local[0];
    tables_.push_back({info.index, record, RowCounts(record.first, record.last)});
  }
}

void Tables::on_accesses(int parameter, std::span<const std::int64_t> ids,
                         std::span<const std::uint32_t> counts) {
  const auto table =
      std::find_if(tables_.begin(), tables_.end(), [&](const Table& t) { return t.parameter == parameter; });
  if (table != tables_.end()) table->counts.add(ids, counts);
}

void Tables::on_slot(const SlotRecord& record) {
  if (record.applied) ++record_.slots;
  if (every_ == 0 || (record.slot + 1) % every_ != 0 || tables_.empty()) return;
  std::int64_t rows = 0, touched = 0;
  for (const Table& table : tables_) {
    rows += table.counts.rows();
    touched += table.counts.touched();
  }
  if (rows > 0) {
    sink_.add(record.slot + 1, Split::kTrain, "touched_share",
              static_cast<double>(touched) / static_cast<double>(rows));
  }
  write();
}

void Tables::on_finish(std::string_view, std::string_view) {
  if (!path_.empty()) write();
}

void Tables::write() {
  record_.tables.clear();
  for (const Table& table : tables_) {
    record_.tables.push_back(table.record);
    record_.tables.back().facts = table.counts.facts(hottest_);
  }
  write_text_atomically(*files_, path_, json(record_));
}

}  // namespace tenon::tables
