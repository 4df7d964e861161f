// One row of Criteo's TSV: label, 13 whole numbers, 26 hexadecimal categories, tab-separated, empty =
// missing. A line is either a complete row or rejected; a partial parse could shift columns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace tenon::ctr {

constexpr std::size_t kCriteoNumbers = 13, kCriteoCategories = 26;
constexpr std::size_t kCriteoFields = 1 + kCriteoNumbers + kCriteoCategories;
constexpr std::int32_t kMissingNumber = std::numeric_limits<std::int32_t>::min();
/// Limit on the bytes of a line, above any real row (at most 391).
constexpr std::size_t kLongestLine = 4096;

/// Row as stored on disk: 40 words, nothing normalised, so that it serves every choice of options.
struct CriteoRow {
  std::uint32_t flags = 0;                             ///< bit 31: the label; bit i: category i is there
  std::array<std::int32_t, kCriteoNumbers> numbers{};  ///< or kMissingNumber
  std::array<std::uint32_t, kCriteoCategories> categories{};  ///< 0 where missing

  std::int32_t label() const { return static_cast<std::int32_t>(flags >> 31); }
  bool has(std::size_t category) const { return (flags >> category & 1) != 0; }
  friend bool operator==(const CriteoRow&, const CriteoRow&) = default;
};
static_assert(sizeof(CriteoRow) == 160);

/// Reason why a line is not a row; the first that applies, in this order.
enum class RowFault : std::uint8_t {
  kTooLong,         ///< longer than kLongestLine
  kNul,             ///< holds a NUL byte
  kCarriageReturn,  ///< holds a carriage return, as files of Windows do
  kNoLabel,         ///< 39 fields, as Kaggle's test.txt has
  kFieldCount,      ///< another number of fields than 40
  kLabel,           ///< neither 0 nor 1
  kNumber,          ///< not a whole number
  kNumberRange,     ///< beyond -2147483647 ... 2147483647
  kHex,             ///< not hexadecimal
  kHexRange,        ///< more than 8 digits
  kCut,             ///< the gzip stream ends or is damaged here; everything after it is lost
};
constexpr std::size_t kRowFaults = 11;
std::string_view fault_name(RowFault fault);

/// Reads the row between `begin` and `end`; false leaves `row` undefined. *end must be a newline.
bool parse_criteo_row(const char* begin, const char* end, CriteoRow& row) noexcept;
/// Returns the fault of a line (without its newline) that parse_criteo_row rejected.
RowFault diagnose_criteo_row(std::string_view line) noexcept;

}  // namespace tenon::ctr
