// Reading of table_record.hpp. A file may be truncated or changed: every member is checked before it is used.
#include "table_record.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::cli {
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
    if (!node.value_.is_number()) fail(fmt::format("'{}' is no number", key));
    return node.value_.get<double>();
  }
  /// A whole number from 0 to `most`.
  std::int64_t count(const char* key, std::int64_t most = std::int64_t{1} << 62) const {
    return at(key).count_of(key, most);
  }
  std::int64_t count_of(const char* key, std::int64_t most) const {
    if (!value_.is_number_unsigned() || value_.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      fail(fmt::format("'{}' is no whole number from 0 to {}", key, most));
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

}  // namespace tenon::cli
