// The fast path only accepts or rejects a line; a second, slower pass finds the cause of a rejection.
#include "criteo_row.hpp"

#include <algorithm>

namespace tenon::ctr {
namespace {

constexpr std::uint8_t kNoDigit = 255;
constexpr std::ptrdiff_t kHexDigits = 8, kDecimalDigits = 10;

constexpr std::array<std::uint8_t, 256> hex_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (int i = 0; i < 10; ++i) values[static_cast<std::size_t>('0' + i)] = static_cast<std::uint8_t>(i);
  for (int i = 0; i < 6; ++i) {
    values[static_cast<std::size_t>('a' + i)] = values[static_cast<std::size_t>('A' + i)] =
        static_cast<std::uint8_t>(10 + i);
  }
  return values;
}
constexpr std::array<std::uint8_t, 256> kHexValues = hex_values();

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

RowFault diagnose_number(std::string_view field) {
  const std::string_view digits = field.substr(field.starts_with('-') ? 1 : 0);
  return !digits.empty() && std::all_of(digits.begin(), digits.end(), is_digit) ? RowFault::kNumberRange
                                                                                : RowFault::kNumber;
}

RowFault diagnose_hex(std::string_view field) {
  const auto is_hex = [](char c) { return kHexValues[static_cast<unsigned char>(c)] != kNoDigit; };
  return std::all_of(field.begin(), field.end(), is_hex) ? RowFault::kHexRange : RowFault::kHex;
}

/// A number has at most ten digits, so it fits 64 bits. Leaves `p` after the tab.
bool parse_number(const char*& p, std::int32_t& number) {
  if (*p == '\t') {
    number = kMissingNumber;
    ++p;
    return true;
  }
  const bool negative = *p == '-';
  p += negative ? 1 : 0;
  const char* const first = p;
  std::int64_t value = 0;
  for (; is_digit(*p) && p - first < kDecimalDigits; ++p) value = value * 10 + (*p - '0');
  if (p == first || value > std::numeric_limits<std::int32_t>::max() || *p != '\t') return false;
  number = static_cast<std::int32_t>(negative ? -value : value);
  ++p;
  return true;
}

}  // namespace

std::string_view fault_name(RowFault fault) {
  constexpr std::string_view kNames[kRowFaults] = {"longer than 4096 bytes",
                                                   "with a NUL byte",
                                                   "with a carriage return",
                                                   "with 39 fields, without a label",
                                                   "with another number of fields than 40",
                                                   "with a label other than 0 or 1",
                                                   "with a number that is not whole",
                                                   "with a number beyond 32 bits",
                                                   "with a category that is not hexadecimal",
                                                   "with a category of more than 8 digits",
                                                   "cut off by the end of, or damage to, the gzip stream"};
  return kNames[static_cast<std::size_t>(fault)];
}

bool parse_criteo_row(const char* begin, const char* end, CriteoRow& row) noexcept {
  const char* p = begin;
  // The newline at `end` is neither tab nor digit, so a short line stops every loop there.
  if ((*p != '0' && *p != '1') || p[1] != '\t') return false;
  std::uint32_t flags = *p == '1' ? std::uint32_t{1} << 31 : 0;
  p += 2;
  for (std::int32_t& number : row.numbers) {
    if (!parse_number(p, number)) return false;
  }
  for (std::size_t i = 0; i < kCriteoCategories; ++i) {
    const char* const first = p;
    std::uint32_t value = 0;
    for (std::uint32_t digit = 0; (digit = kHexValues[static_cast<unsigned char>(*p)]) != kNoDigit; ++p) {
      value = value << 4 | digit;
    }
    if (p - first > kHexDigits || *p != (i + 1 < kCriteoCategories ? '\t' : '\n')) return false;
    flags |= p == first ? 0 : std::uint32_t{1} << i;
    row.categories[i] = value;
    ++p;
  }
  row.flags = flags;
  return p == end + 1;
}

RowFault diagnose_criteo_row(std::string_view line) noexcept {
  if (line.size() > kLongestLine) return RowFault::kTooLong;
  if (line.find('\0') != std::string_view::npos) return RowFault::kNul;
  if (line.find('\r') != std::string_view::npos) return RowFault::kCarriageReturn;
  const auto fields = static_cast<std::size_t>(std::count(line.begin(), line.end(), '\t')) + 1;
  if (fields == kCriteoFields - 1) return RowFault::kNoLabel;
  if (fields != kCriteoFields) return RowFault::kFieldCount;
  for (std::size_t place = 0; place < kCriteoFields; ++place) {
    const std::string_view field = line.substr(0, line.find('\t'));
    line.remove_prefix(std::min(line.size(), field.size() + 1));
    const bool is_number = place <= kCriteoNumbers;
    if (place == 0 && field != "0" && field != "1") return RowFault::kLabel;
    if (place == 0 || field.empty()) continue;
    // The field alone, in an otherwise empty row, shows whether it is at fault.
    std::array<char, kLongestLine + kCriteoFields + 2> alone;
    CriteoRow row;
    char* end = alone.data();
    *end++ = '0';
    for (std::size_t i = 1; i < kCriteoFields; ++i) {
      *end++ = '\t';
      if (i == place) end = std::copy(field.begin(), field.end(), end);
    }
    *end = '\n';
    if (!parse_criteo_row(alone.data(), end, row))
      return is_number ? diagnose_number(field) : diagnose_hex(field);
  }
  return RowFault::kFieldCount;  // unreachable: the fast path rejects nothing else
}

}  // namespace tenon::ctr
