// The tables of one rank's file, then those of all ranks as one view, and its output. A file may be truncated
// or changed: every member is checked before it is used.
#include "tables/table_record.hpp"

#include "base/json_writer.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace tenon::train {
namespace {

using nlohmann::json;

/// A JSON value and its path, for messages.
class Node {
 public:
  Node(const json& value, const std::string& where) : value_(value), where_(where) {}

  Node at(const char* key) const {
    if (!value_.is_object() || !value_.contains(key)) fail(fmt::format("it has no '{}'", key));
    return {value_[key], where_};
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }
  std::vector<Node> items(const char* key) const { return at(key).items_of(key); }
  std::vector<Node> items_of(const char* key) const {
    if (!value_.is_array()) fail(fmt::format("'{}' is no list", key));
    std::vector<Node> nodes;
    for (const json& item : value_) nodes.emplace_back(item, where_);
    return nodes;
  }
  std::string text(const char* key) const {
    const Node node = at(key);
    if (!node.value_.is_string()) fail(fmt::format("'{}' is no text", key));
    return node.value_.get<std::string>();
  }
  double real(const char* key) const {
    const Node node = at(key);
    if (!node.value_.is_number()) fail(fmt::format("'{}' is not a number", key));
    return node.value_.get<double>();
  }
  /// A whole number from 0 to `most`.
  std::int64_t count(const char* key, std::int64_t most = std::int64_t{1} << 62) const {
    return at(key).count_of(key, most);
  }
  std::int64_t count_of(const char* key, std::int64_t most) const {
    if (!value_.is_number_unsigned() || value_.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      fail(fmt::format("'{}' is not a whole number from 0 to {}", key, most));
    return value_.get<std::int64_t>();
  }
  [[noreturn]] void fail(const std::string& what) const {
    fail_run(fmt::format("{}: not a file of observer 'tables': {}", where_, what));
  }

 private:
  const json& value_;
  const std::string& where_;
};

TierFacts tier_of(const Node& node) {
  TierFacts tier{.state = node.text("state"),
                 .tier = node.text("tier"),
                 .reads = node.count("reads"),
                 .writes = node.count("writes"),
                 .hits = node.count("hits"),
                 .misses = node.count("misses"),
                 .ahead = node.count("ahead"),
                 .evictions = node.count("evictions"),
                 .write_backs = node.count("write_backs"),
                 .bytes_in = node.count("bytes_in"),
                 .bytes_out = node.count("bytes_out"),
                 .stall_seconds = node.real("stall_seconds")};
  if (!std::isfinite(tier.stall_seconds) || tier.stall_seconds < 0)
    node.fail("'stall_seconds' is not a number from 0 on");
  return tier;
}

/// A larger cache has at least the hits of a smaller one.
ReuseFacts reuse_of(const Node& node, std::int64_t owned) {
  ReuseFacts reuse{.accesses = node.count("accesses")};
  reuse.first = node.count("first", reuse.accesses);
  for (const Node& point : node.items("lru_hits")) {
    const std::vector<Node> pair = point.items_of("lru_hits");
    if (pair.size() != 2) node.fail("a point of 'lru_hits' must hold two numbers");
    const ReuseFacts::Point next{pair[0].count_of("lru_hits", owned),
                                 pair[1].count_of("lru_hits", reuse.accesses - reuse.first)};
    const ReuseFacts::Point last = reuse.lru.empty() ? ReuseFacts::Point() : reuse.lru.back();
    if (next.rows <= last.rows || next.hits < last.hits)
      node.fail(fmt::format("'lru_hits' falls: {} hits with {} rows follow {} with {}", next.hits, next.rows,
                            last.hits, last.rows));
    reuse.lru.push_back(next);
  }
  return reuse;
}

TableFacts table_of(const Node& node, int rank) {
  TableFacts table{.name = node.text("name"),
                   .dtype = node.text("dtype"),
                   .rows = node.count("rows"),
                   .width = node.count("width"),
                   .bytes = node.count("bytes")};
  TablePart part{.rank = rank,
                 .accesses = static_cast<std::uint64_t>(node.count("accesses")),
                 .share_of_1_percent = node.real("share_of_hottest_1_percent"),
                 .share_of_10_percent = node.real("share_of_hottest_10_percent")};
  const std::vector<Node> owned = node.items("owned");
  if (owned.size() != 2) node.fail("'owned' must hold two numbers");
  part.last = owned[1].count_of("owned", table.rows);
  part.first = owned[0].count_of("owned", part.last);
  part.touched = node.count("touched_rows", part.last - part.first);
  for (const Node& row : node.items("hottest"))
    part.hottest.push_back({row.count("row", table.rows), static_cast<std::uint64_t>(row.count("accesses"))});
  if (node.has("tiers")) {
    for (const Node& tier : node.items("tiers")) part.tiers.push_back(tier_of(tier));
  }
  if (node.has("reuse")) part.reuse = reuse_of(node.at("reuse"), part.last - part.first);
  table.placement.push_back(part);
  return table;
}

}  // namespace

RankTables parse_rank_tables(std::string_view text, const std::string& where) {
  const json root = json::parse(text.begin(), text.end(), nullptr, false);
  const Node node(root, where);
  if (root.is_discarded()) node.fail("it is no JSON");
  constexpr std::int64_t kMostRanks = 1 << 20;
  RankTables result{.rank = static_cast<int>(node.count("rank", kMostRanks)),
                    .ranks = static_cast<int>(node.count("ranks", kMostRanks)),
                    .first_slot = node.count("first_slot"),
                    .slots = node.count("slots"),
                    .named_rows = node.count("named_rows")};
  if (node.has("samples")) result.samples = node.count("samples");
  if (result.rank >= result.ranks) node.fail(fmt::format("rank {} of {}", result.rank, result.ranks));
  for (const Node& table : node.items("tables")) result.tables.push_back(table_of(table, result.rank));
  return result;
}

namespace {

constexpr std::int64_t kLargestFile = std::int64_t{64} << 20;

/// 3 of "tables.rank3.json".
std::optional<int> rank_of(std::string_view name) {
  constexpr std::string_view kBefore = "tables.rank", kAfter = ".json";
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) return std::nullopt;
  if (name.size() <= kBefore.size() + kAfter.size()) return std::nullopt;
  name = name.substr(kBefore.size(), name.size() - kBefore.size() - kAfter.size());
  int rank = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), rank);
  return code == std::errc() && end == name.data() + name.size() && rank >= 0 ? std::optional(rank)
                                                                              : std::nullopt;
}

TableFacts& find_or_add(std::vector<TableFacts>& tables, const TableFacts& seen, const std::string& folder) {
  const auto found =
      std::find_if(tables.begin(), tables.end(), [&](const TableFacts& t) { return t.name == seen.name; });
  if (found == tables.end()) {
    tables.push_back(seen);
    tables.back().placement.clear();
    return tables.back();
  }
  if (found->rows != seen.rows || found->width != seen.width || found->dtype != seen.dtype) {
    fail_run(fmt::format("{}: the files of the ranks disagree on table '{}': {} x {} {} and {} x {} {}",
                         folder, seen.name, found->rows, found->width, found->dtype, seen.rows, seen.width,
                         seen.dtype));
  }
  return *found;
}

/// Copies of the same rows count once.
void add_part(TableFacts& table, const TablePart& part, std::int64_t named_rows, const std::string& folder) {
  const bool copy = std::any_of(table.placement.begin(), table.placement.end(), [&](const TablePart& other) {
    return other.first == part.first && other.last == part.last;
  });
  const bool overlaps =
      std::any_of(table.placement.begin(), table.placement.end(),
                  [&](const TablePart& other) { return part.first < other.last && other.first < part.last; });
  if (overlaps && !copy) {
    fail_run(fmt::format(
        "{}: table '{}': rank {} says that it holds rows {} to {}, of which another rank holds some; "
        "the files are of different runs",
        folder, table.name, part.rank, part.first, part.last - 1));
  }
  table.placement.push_back(part);
  if (copy) return;
  table.accesses += part.accesses;
  table.touched += part.touched;
  table.hottest.insert(table.hottest.end(), part.hottest.begin(), part.hottest.end());
  std::sort(table.hottest.begin(), table.hottest.end(), [](const HotRow& a, const HotRow& b) {
    return a.accesses != b.accesses ? a.accesses > b.accesses : a.row < b.row;
  });
  table.hottest.resize(std::min(static_cast<std::size_t>(named_rows), table.hottest.size()));
}

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string placement_line(const TablePart& part) {
  if (part.first == part.last) return fmt::format("  rank {}: no rows\n", part.rank);
  std::string line = fmt::format("  rank {}: rows {} to {}, {} accesses", part.rank, part.first,
                                 part.last - 1, part.accesses);
  if (part.accesses > 0) {
    line += fmt::format("; the hottest 1 % of these rows took {:.1f} %, the hottest 10 % {:.1f} %",
                        100 * part.share_of_1_percent, 100 * part.share_of_10_percent);
  }
  return line + "\n";
}

std::string tier_line(const TierFacts& tier) {
  std::string line =
      fmt::format("    {} in {}: {} rows read, {} written", tier.state.empty() ? "weights" : tier.state,
                  tier.tier, tier.reads, tier.writes);
  if (const std::int64_t asked = tier.hits + tier.misses; asked > 0)
    line += fmt::format("; {} hits, {} misses ({:.1f} % hits)", tier.hits, tier.misses,
                        100 * ratio(tier.hits, asked));
  const auto add = [&](std::int64_t count, const char* what) {
    if (count > 0) line += fmt::format(", {} {}", count, what);
  };
  add(tier.ahead, "ahead");
  add(tier.evictions, "evictions");
  add(tier.write_backs, "write-backs");
  if (tier.bytes_in + tier.bytes_out > 0)
    line += fmt::format("; {} bytes in, {} out", tier.bytes_in, tier.bytes_out);
  if (tier.stall_seconds > 0) line += fmt::format("; stalled {:.3g} s", tier.stall_seconds);
  return line + "\n";
}

/// Hits at the sizes next to usual shares of the rows.
std::string reuse_line(const ReuseFacts& reuse, std::int64_t owned) {
  std::string line = fmt::format("    a cache of the rows used last, of {} accesses:", reuse.accesses);
  std::int64_t shown = 0;
  const char* separator = "";
  for (const double share : {0.01, 0.05, 0.2, 0.5, 1.0}) {
    const auto found = std::find_if(reuse.lru.begin(), reuse.lru.end(), [&](const ReuseFacts::Point& point) {
      return static_cast<double>(point.rows) >= share * static_cast<double>(owned);
    });
    if (found == reuse.lru.end() || found->rows == shown) continue;
    shown = found->rows;
    line += fmt::format("{} {:.1f} % hits with {} rows", separator, 100 * ratio(found->hits, reuse.accesses),
                        shown);
    separator = ",";
  }
  return line + "\n";
}

}  // namespace

RunTables join(const std::string& folder, const std::vector<RankTables>& ranks) {
  RunTables run{.folder = folder,
                .ranks = ranks.front().ranks,
                .first_slot = ranks.front().first_slot,
                .slots = ranks.front().slots,
                .samples = ranks.front().samples};
  // Each rank named its own hottest rows: beyond the shortest such list another rank's row could be missing.
  std::int64_t named_rows = ranks.front().named_rows;
  for (const RankTables& rank : ranks) named_rows = std::min(named_rows, rank.named_rows);
  for (const RankTables& rank : ranks) {
    run.ranks = std::max(run.ranks, rank.ranks);
    for (const TableFacts& table : rank.tables)
      add_part(find_or_add(run.tables, table, folder), table.placement.front(), named_rows, folder);
  }
  for (int rank = 0; rank < run.ranks; ++rank) {
    if (std::none_of(ranks.begin(), ranks.end(), [&](const RankTables& there) { return there.rank == rank; }))
      run.missing.push_back(rank);
  }
  return run;
}

RunTables read_tables(FileSystem& files, const std::string& folder) {
  std::vector<RankTables> ranks;
  for (const DirectoryEntry& entry : files.list(folder)) {
    const std::optional<int> rank = rank_of(entry.name);
    if (!rank) continue;
    const std::string path = folder + "/" + entry.name;
    ranks.push_back(parse_rank_tables(read_text(files, path, kLargestFile), path));
    if (ranks.back().rank != *rank)
      fail_run(fmt::format("{}: it is the file of rank {}", path, ranks.back().rank));
  }
  if (ranks.empty()) {
    fail_config(fmt::format(
        "{} has no record of its tables (tables.rank<r>.json). The observer `tables` "
        "writes it: add\n\n[[observe]]\ntype = \"tables\"\n\nto the configuration and train again",
        folder));
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const RankTables& a, const RankTables& b) { return a.rank < b.rank; });
  // An attempt that continued with fewer ranks still has the files of the others.
  const RankTables& newest = ranks.front();
  std::erase_if(ranks, [ranks_now = newest.ranks, first_slot = newest.first_slot](const RankTables& other) {
    return other.rank >= ranks_now || other.ranks != ranks_now || other.first_slot != first_slot;
  });
  return join(folder, ranks);
}

std::string tables_text(const RunTables& run) {
  std::string out = fmt::format("{}: {} {}, {} applied slots from slot {}\n", run.folder, run.ranks,
                                run.ranks == 1 ? "rank" : "ranks", run.slots, run.first_slot);
  if (!run.missing.empty())
    out += fmt::format("no file of rank {}: what those ranks hold is missing below\n",
                       fmt::join(run.missing, ", "));
  if (run.tables.empty()) out += "the model has no row tables\n";
  for (const TableFacts& table : run.tables) {
    out += fmt::format("\n{}: {} rows x {} {}, {} bytes\n", table.name, table.rows, table.width, table.dtype,
                       table.bytes);
    out += fmt::format("  touched: {} rows ({:.1f} %), {} accesses\n", table.touched,
                       100 * ratio(table.touched, table.rows), table.accesses);
    out += "  hottest rows:";
    for (const HotRow& row : table.hottest)
      out += fmt::format("{} {} ({})", &row == table.hottest.data() ? "" : ",", row.row, row.accesses);
    out += table.hottest.empty() ? " none\n" : "\n";
    for (const TablePart& part : table.placement) {
      out += placement_line(part);
      for (const TierFacts& tier : part.tiers) out += tier_line(tier);
      if (part.reuse && part.reuse->accesses > 0) out += reuse_line(*part.reuse, part.last - part.first);
    }
  }
  return out;
}

std::string tables_json(const RunTables& run) {
  JsonWriter json;
  json.begin_object();
  json.member("run", run.folder);
  json.member("ranks", run.ranks);
  json.member("first_slot", run.first_slot);
  json.member("slots", run.slots);
  json.member("samples", run.samples);
  json.objects("ranks_without_file", run.missing, [&](const int rank) { json.member("rank", rank); });
  json.objects("tables", run.tables, [&](const TableFacts& table) {
    json.member("name", table.name);
    json.member("rows", table.rows);
    json.member("width", table.width);
    json.member("dtype", table.dtype);
    json.member("bytes", table.bytes);
    json.member("accesses", table.accesses);
    json.member("touched_rows", table.touched);
    json.member("touched_share", ratio(table.touched, table.rows));
    json.objects("hottest", table.hottest, [&](const HotRow& row) {
      json.member("row", row.row);
      json.member("accesses", row.accesses);
    });
    json.objects("placement", table.placement, [&](const TablePart& part) {
      json.member("rank", part.rank);
      json.member("first_row", part.first);
      json.member("end_row", part.last);
      json.member("accesses", part.accesses);
      json.member("touched_rows", part.touched);
      json.member("share_of_hottest_1_percent", part.share_of_1_percent);
      json.member("share_of_hottest_10_percent", part.share_of_10_percent);
      if (!part.tiers.empty()) {
        json.objects("tiers", part.tiers, [&](const TierFacts& tier) {
          json.member("state", tier.state);
          json.member("tier", tier.tier);
          json.member("reads", tier.reads);
          json.member("writes", tier.writes);
          json.member("hits", tier.hits);
          json.member("misses", tier.misses);
          json.member("ahead", tier.ahead);
          json.member("evictions", tier.evictions);
          json.member("write_backs", tier.write_backs);
          json.member("bytes_in", tier.bytes_in);
          json.member("bytes_out", tier.bytes_out);
          json.member("stall_seconds", tier.stall_seconds);
        });
      }
      if (!part.reuse) return;
      json.begin_object("reuse");
      json.member("accesses", part.reuse->accesses);
      json.member("first", part.reuse->first);
      json.objects("lru_hits", part.reuse->lru, [&](const ReuseFacts::Point& point) {
        json.member("rows", point.rows);
        json.member("hits", point.hits);
      });
      json.end_object();
    });
  });
  json.end_object();
  return json.take();
}

}  // namespace tenon::train
