// Event handlers of tables.hpp.
#include "tables.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>

namespace tenon::tables {
namespace {

/// Returns the share of the `most` largest; reorders `counts`.
double share_of_largest(std::vector<std::uint32_t>& counts, std::int64_t most) {
  const auto all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (all == 0) return 0;
  const auto end = counts.begin() + std::min<std::int64_t>(most, static_cast<std::int64_t>(counts.size()));
  if (end != counts.end()) std::nth_element(counts.begin(), end, counts.end(), std::greater<>());
  return static_cast<double>(std::accumulate(counts.begin(), end, std::uint64_t{0})) /
         static_cast<double>(all);
}

}  // namespace

RowCounts::RowCounts(std::int64_t first, std::int64_t last)
    : first_(first), counts_(std::max<std::int64_t>(0, last - first), 0) {}

void RowCounts::add(std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts) {
  constexpr std::uint32_t kFull = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < first_ || ids[i] >= last()) {
      fail_run("observer tables: row " + std::to_string(ids[i]) + " is not one of this rank's rows [" +
               std::to_string(first_) + ", " + std::to_string(last()) + ")");
    }
    std::uint32_t& count = counts_[ids[i] - first_];
    if (count == 0 && counts[i] > 0) ++touched_;
    count = counts[i] > kFull - count ? kFull : count + counts[i];
    accesses_ += counts[i];
  }
}

std::vector<HotRow> RowCounts::hottest(std::size_t most) const {
  std::vector<HotRow> rows;
  const auto hotter = [](const HotRow& a, const HotRow& b) {
    return a.accesses != b.accesses ? a.accesses > b.accesses : a.row < b.row;
  };
  for (std::size_t i = 0; i < counts_.size() && most > 0; ++i) {
    // Rows are visited in ascending order, so a row that ties with the last place does not go before it.
    if (counts_[i] == 0 || (rows.size() == most && counts_[i] <= rows.back().accesses)) continue;
    const HotRow row{first_ + static_cast<std::int64_t>(i), counts_[i]};
    if (rows.size() == most) rows.pop_back();
    rows.insert(std::upper_bound(rows.begin(), rows.end(), row, hotter), row);
  }
  return rows;
}

AccessFacts RowCounts::facts(std::size_t most) const {
  AccessFacts facts{.accesses = accesses_, .touched = touched_, .hottest = hottest(most)};
  std::vector<std::uint32_t> above_zero;
  above_zero.reserve(touched_);
  std::copy_if(counts_.begin(), counts_.end(), std::back_inserter(above_zero),
               [](std::uint32_t count) { return count > 0; });
  facts.share_of_10_percent = share_of_largest(above_zero, (rows() + 9) / 10);
  facts.share_of_1_percent = share_of_largest(above_zero, (rows() + 99) / 100);
  return facts;
}

std::vector<std::int64_t> cache_sizes(std::int64_t rows) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size < rows; size = std::max(size + 1, size * 6 / 5)) sizes.push_back(size);
  if (rows > 0) sizes.push_back(rows);
  return sizes;
}

ReuseFacts reuse_facts(const ReuseDistances& distances, std::int64_t rows) {
  ReuseFacts facts{.accesses = distances.accesses()};
  const std::vector<std::int64_t> sizes = cache_sizes(rows);
  const std::vector<std::int64_t> hits = distances.hits(sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) facts.hits.emplace_back(sizes[i], hits[i]);
  facts.first = facts.accesses - (hits.empty() ? 0 : hits.back());
  return facts;
}

// Writes the JSON front to back; a table's hottest rows share one line.

namespace {

template <typename T>
void append(std::string& out, const char* key, T value) {
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(key).append(digits.data(), end);
}

void append_text(std::string& out, const char* key, std::string_view text) {
  out.append(key) += '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20) {
      out += "\\u00";
      out += static_cast<char>('0' + code / 16);
      out += "0123456789abcdef"[code % 16];
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

void append_tier(std::string& out, const TierRecord& tier) {
  const TierCount& count = tier.count;
  append_text(out, "{\"state\": ", tier.state);
  append_text(out, ", \"tier\": ", count.tier);
  append(out, ", \"reads\": ", count.reads);
  append(out, ", \"writes\": ", count.writes);
  append(out, ", \"hits\": ", count.hits);
  append(out, ", \"misses\": ", count.misses);
  append(out, ",\n       \"ahead\": ", count.ahead);
  append(out, ", \"evictions\": ", count.evictions);
  append(out, ", \"write_backs\": ", count.write_backs);
  append(out, ", \"bytes_in\": ", count.bytes_in);
  append(out, ", \"bytes_out\": ", count.bytes_out);
  append(out, ", \"stall_seconds\": ", count.stall_seconds);
  out += '}';
}

void append_reuse(std::string& out, const ReuseFacts& reuse) {
  append(out, ",\n     \"reuse\": {\"accesses\": ", reuse.accesses);
  append(out, ", \"first\": ", reuse.first);
  out += ", \"lru_hits\": [";
  const char* separator = "";
  for (const auto& [rows, hits] : reuse.hits) {
    append(out.append(separator), "[", rows);
    append(out, ", ", hits);
    out += ']';
    separator = ", ";
  }
  out += "]}";
}

void append_table(std::string& out, const TableRecord& table) {
  append_text(out, "    {\"name\": ", table.name);
  append(out, ", \"rows\": ", table.rows);
  append(out, ", \"width\": ", table.width);
  append_text(out, ", \"dtype\": ", table.dtype);
  append(out, ", \"bytes\": ", table.bytes);
  append(out, ",\n     \"owned\": [", table.first);
  append(out, ", ", table.last);
  append(out, "], \"accesses\": ", table.facts.accesses);
  append(out, ", \"touched_rows\": ", table.facts.touched);
  const auto owned = static_cast<double>(std::max<std::int64_t>(1, table.last - table.first));
  append(out, ", \"touched_share\": ", static_cast<double>(table.facts.touched) / owned);
  append(out, ",\n     \"share_of_hottest_1_percent\": ", table.facts.share_of_1_percent);
  append(out, ", \"share_of_hottest_10_percent\": ", table.facts.share_of_10_percent);
  out += ",\n     \"hottest\": [";
  const char* separator = "";
  for (const HotRow& row : table.facts.hottest) {
    append(out.append(separator), "{\"row\": ", row.row);
    append(out, ", \"accesses\": ", row.accesses);
    out += '}';
    separator = ", ";
  }
  out += ']';
  separator = ",\n     \"tiers\": [";
  for (const TierRecord& tier : table.tiers) {
    append_tier(out.append(separator), tier);
    separator = ",\n      ";
  }
  if (!table.tiers.empty()) out += ']';
  if (table.reuse) append_reuse(out, *table.reuse);
  out += '}';
}

}  // namespace

std::string json(const RankRecord& record) {
  std::string out;
  append(out, "{\n  \"rank\": ", record.rank);
  append(out, ",\n  \"ranks\": ", record.ranks);
  append(out, ",\n  \"first_slot\": ", record.first_slot);
  append(out, ",\n  \"slots\": ", record.slots);
  append(out, ",\n  \"samples\": ", record.samples);
  append(out, ",\n  \"named_rows\": ", record.named_rows);
  out += ",\n  \"tables\": [";
  const char* separator = "\n";
  for (const TableRecord& table : record.tables) {
    append_table(out.append(separator), table);
    separator = ",\n";
  }
  return out + (record.tables.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

Tables::Tables(const Options& options, Host& host)
    : Tables(
          {.hottest = static_cast<std::size_t>(options.integer("hottest")),
           .every = options.integer("every"),
           .reuse = options.boolean("reuse")},
          *static_cast<MetricSink*>(host.query(MetricSink::kId)),
          [&host] { return static_cast<TableCounts*>(host.query(TableCounts::kId)); }, make_posix_files()) {}

Tables::Tables(const Settings& settings, MetricSink& sink, std::function<TableCounts*()> counts,
               std::unique_ptr<FileSystem> files)
    : settings_(settings), sink_(sink), find_counts_(std::move(counts)), files_(std::move(files)) {}

void* Tables::query(std::string_view interface_id) {
  return interface_id == RowObserver::kId ? static_cast<RowObserver*>(this) : nullptr;
}

void Tables::on_start(const RunInfo& info) {
  record_ = {.rank = info.rank,
             .ranks = info.ranks,
             .first_slot = info.first_slot,
             .named_rows = static_cast<std::int64_t>(settings_.hottest)};
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
    const std::int64_t owned = record.last - record.first;
    tables_.push_back({info.index, record, RowCounts(record.first, record.last),
                       settings_.reuse && owned > 0 ? std::make_unique<ReuseDistances>(owned) : nullptr});
  }
  counts_ = find_counts_();
}

void Tables::on_accesses(int parameter, std::span<const std::int64_t> ids,
                         std::span<const std::uint32_t> counts) {
  const auto table =
      std::find_if(tables_.begin(), tables_.end(), [&](const Table& t) { return t.parameter == parameter; });
  if (table == tables_.end()) return;
  table->counts.add(ids, counts);
  if (table->reuse == nullptr) return;
  for (const std::int64_t id : ids) table->reuse->access(id - table->record.first);
}

void Tables::on_slot(const SlotRecord& record) {
  if (record.applied) ++record_.slots;
  // Every slot has as many samples as another.
  if (earlier_samples_ < 0)
    earlier_samples_ = record_.first_slot == 0 ? 0 : record.samples / (record.slot + 1) * record.slot;
  record_.samples = std::max(record_.samples, record.samples - earlier_samples_);
  if (settings_.every == 0 || (record.slot + 1) % settings_.every != 0 || tables_.empty()) return;
  add_metrics(record.slot + 1);
  write();
}

void Tables::add_metrics(std::int64_t step) {
  std::int64_t rows = 0, touched = 0;
  for (const Table& table : tables_) {
    rows += table.counts.rows();
    touched += table.counts.touched();
  }
  if (rows > 0) {
    sink_.add(step, Split::kTrain, "touched_share", static_cast<double>(touched) / static_cast<double>(rows));
  }
  const CacheSums sums = cache_sums();
  if (!sums.has_levels) return;
  const std::int64_t samples = sums.samples - reported_.samples;
  const std::int64_t hits = sums.hits - reported_.hits;
  const std::int64_t asked = hits + sums.outermost_misses - reported_.outermost_misses;
  const auto add_per_sample = [&](std::string_view name, std::int64_t count) {
    if (samples > 0)
      sink_.add(step, Split::kTrain, name, static_cast<double>(count) / static_cast<double>(samples));
  };
  add_per_sample("tables/moved_bytes_per_sample", sums.moved_bytes - reported_.moved_bytes);
  if (sums.has_caches) add_per_sample("tables/misses_per_sample", sums.misses - reported_.misses);
  if (asked > 0) {
    sink_.add(step, Split::kTrain, "tables/hit_rate", static_cast<double>(hits) / static_cast<double>(asked));
  }
  reported_ = sums;
}

Tables::CacheSums Tables::cache_sums() const {
  CacheSums sums{.samples = record_.samples};
  int of = -1;  // the table whose outermost cache has been found
  if (counts_ == nullptr) return sums;
  counts_->visit([&](int parameter, std::string_view state, const TierCount& level) {
    sums.has_levels = true;
    sums.moved_bytes += level.bytes_in + level.bytes_out;
    if (!state.empty() || level.hits + level.misses == 0) return;
    sums.has_caches = true;
    sums.misses += level.misses;
    if (of == parameter) return;
    of = parameter;
    sums.hits += level.hits;
    sums.outermost_misses += level.misses;
  });
  return sums;
}

void Tables::on_finish(std::string_view, std::string_view) {
  if (!path_.empty()) write();
}

void Tables::write() {
  record_.tables.clear();
  for (const Table& table : tables_) {
    record_.tables.push_back(table.record);
    record_.tables.back().facts = table.counts.facts(settings_.hottest);
    if (table.reuse != nullptr) record_.tables.back().reuse = reuse_facts(*table.reuse, table.counts.rows());
  }
  if (counts_ != nullptr) {
    counts_->visit([&](int parameter, std::string_view state, const TierCount& level) {
      for (std::size_t i = 0; i < tables_.size(); ++i) {
        if (tables_[i].parameter == parameter) record_.tables[i].tiers.push_back({std::string(state), level});
      }
    });
  }
  files_->write_text_atomically(path_, json(record_));
}

}  // namespace tenon::tables

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tables",
                               .version = "0.1.0",
                               .summary = "how rows of tables are used"},
             tenon::tables::Tables)
