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
  std::vector<Node> items(const char* key) const {
    const Node list = at(key);
    if (!list.value_.is_array()) fail(fmt::format("'{}' is no list", key));
    std::vector<Node> nodes;
    for (const json& item : list.value_) nodes.emplace_back(item, where_);
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

}  // namespace

RunTables join(const std::string& folder, const std::vector<RankTables>& ranks) {
  RunTables run{.folder = folder,
                .ranks = ranks.front().ranks,
                .first_slot = ranks.front().first_slot,
                .slots = ranks.front().slots};
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
    for (const TablePart& part : table.placement) out += placement_line(part);
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
    });
  });
  json.end_object();
  return json.take();
}

}  // namespace tenon::train
