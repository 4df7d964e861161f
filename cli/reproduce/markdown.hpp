// Pieces of Markdown tables. Text only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenon::reproduce {

/// In a cell without a value.
inline constexpr const char* kNoValue = "–";
/// A cell of a table: bars would end it.
std::string cell(std::string_view text);
std::string row(const std::vector<std::string>& cells);
/// Names of columns; all but the first hold numbers.
std::string head(const std::vector<std::string>& names);
/// Counts with a thousands separator.
std::string count(double value);

}  // namespace tenon::reproduce
