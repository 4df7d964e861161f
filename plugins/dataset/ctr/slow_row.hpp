// Slow parser of Criteo's rows, by strtoll over split fields: the reference for the fast reader.
#pragma once

#include "criteo_reader.hpp"

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace tenon::ctr {

/// Parses a line without its newline; empty if the line is not a row.
inline std::optional<CriteoRow> slow_row(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (fields.size() != 40 || (fields[0] != "0" && fields[0] != "1")) return std::nullopt;
  CriteoRow row;
  row.flags = fields[0] == "1" ? 1u << 31 : 0;
  for (std::size_t i = 0; i < 39; ++i) {
    const std::string& field = fields[1 + i];
    const bool number = i < 13;
    if (number) row.numbers[i] = kMissingNumber;
    if (field.empty()) continue;
    const std::string digits = number && field[0] == '-' ? field.substr(1) : field;
    const char* const allowed = number ? "0123456789" : "0123456789abcdefABCDEF";
    if (digits.empty() || digits.size() > (number ? 10 : 8) ||
        digits.find_first_not_of(allowed) != std::string::npos) {
      return std::nullopt;
    }
    const long long value = std::strtoll(field.c_str(), nullptr, number ? 10 : 16);
    if (number && std::llabs(value) > 2147483647) return std::nullopt;
    if (number) {
      row.numbers[i] = static_cast<std::int32_t>(value);
    } else {
      row.categories[i - 13] = static_cast<std::uint32_t>(value);
      row.flags |= 1u << (i - 13);
    }
  }
  return row;
}

}  // namespace tenon::ctr
