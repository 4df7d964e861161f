// The files of UCI Adult: 15 fields a line, `?` = missing, the values of a category in the order in which
// adult.names lists them. Reads rows; knows no statistics and no split.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::ctr {

constexpr std::size_t kAdultNumbers = 6;  ///< age, fnlwgt, education_num, capital_gain, capital_loss, hours
constexpr std::size_t kAdultCategories = 8;            ///< workclass ... native_country
constexpr std::size_t kAdultGain = 3, kAdultLoss = 4;  ///< places of capital_gain and capital_loss

struct AdultRow {
  std::array<std::int32_t, kAdultNumbers> numbers{};
  std::array<std::int32_t, kAdultCategories> ids{};  ///< 0 = missing, then the index in adult.names from 1
  std::int32_t label = 0;                            ///< 1: more than 50,000

  friend bool operator==(const AdultRow&, const AdultRow&) = default;
};

/// Returns the values of category `table`, without `?`.
std::span<const std::string_view> adult_values(std::size_t table);

/// Parses all rows of the text of a file. Skips empty lines and lines that begin with '|'; a label may end in
/// a full stop. Throws Error(kConfig) with `path` and the line, counting from 1, at the first line that is
/// not a row.
std::vector<AdultRow> parse_adult(std::string_view text, const std::string& path);

/// The same for a file of at most 256 MiB.
std::vector<AdultRow> read_adult(const std::string& path);

}  // namespace tenon::ctr
