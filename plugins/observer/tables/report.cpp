// Writes the JSON front to back; a table's hottest rows share one line.
#include "report.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace tenon::tables {
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
  out += "]}";
}

}  // namespace

std::string json(const RankRecord& record) {
  std::string out;
  append(out, "{\n  \"rank\": ", record.rank);
  append(out, ",\n  \"ranks\": ", record.ranks);
  append(out, ",\n  \"first_slot\": ", record.first_slot);
  append(out, ",\n  \"slots\": ", record.slots);
  append(out, ",\n  \"named_rows\": ", record.named_rows);
  out += ",\n  \"tables\": [";
  const char* separator = "\n";
  for (const TableRecord& table : record.tables) {
    append_table(out.append(separator), table);
    separator = ",\n";
  }
  return out + (record.tables.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

}  // namespace tenon::tables
