// Parsing of rows, then streaming of files.
#include "criteo_reader.hpp"

#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <system_error>

namespace tenon::ctr {

// The fast path only accepts or rejects a line; a second, slower pass finds the cause of a rejection.

namespace {

constexpr std::uint8_t kNoDigit = 255;
constexpr std::ptrdiff_t kHexDigits = 8, kDecimalDigits = 10;

constexpr std::array<std::uint8_t, 256> hex_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (int i = 0; i < 10; ++i) values['0' + i] = static_cast<std::uint8_t>(i);
  for (int i = 0; i < 6; ++i) {
    values['a' + i] = values['A' + i] = static_cast<std::uint8_t>(10 + i);
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

// Uses one buffer; zlib reads plain files straight into it. An overlong line is dropped piece by piece.

void FaultCounts::add(RowFault fault, std::int64_t line) {
  const auto kind = static_cast<std::size_t>(fault);
  if (counts[kind] < static_cast<std::int64_t>(kShown)) lines[kind][counts[kind]] = line;
  ++counts[kind];
}

std::int64_t FaultCounts::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::string FaultCounts::text() const {
  std::vector<std::string> texts;
  for (std::size_t kind = 0; kind < kRowFaults; ++kind) {
    if (counts[kind] == 0) continue;
    std::vector<std::int64_t> places;
    for (const std::int64_t line : lines[kind]) {
      if (line > 0) places.push_back(line);
    }
    const bool more = counts[kind] > static_cast<std::int64_t>(kShown);
    texts.push_back(fmt::format("{} {} (line{} {}{})", counts[kind], fault_name(static_cast<RowFault>(kind)),
                                counts[kind] > 1 ? "s" : "", fmt::join(places, ", "), more ? ", ..." : ""));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

void CriteoReader::Close::operator()(gzFile_s* file) const {
  ::gzclose(file);
}

CriteoReader::CriteoReader(const std::string& path, std::size_t buffer) : path_(path), buffer_(buffer + 1) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot open it: " + std::generic_category().message(errno));
  struct stat status {};
  const bool is_folder = ::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
  if (!is_folder) file_.reset(::gzdopen(descriptor, "rb"));
  if (file_ == nullptr) {
    ::close(descriptor);
    fail(is_folder ? "expected a file of tab-separated rows, found a folder"
                   : "cannot read it: out of memory");
  }
  ::gzbuffer(file_.get(), 1 << 18);
}

CriteoReader::~CriteoReader() = default;

void CriteoReader::fail(const std::string& text) const {
  fail_config(fmt::format("data file '{}': {}", path_, text));
}

void CriteoReader::fill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const int got =
      ::gzread(file_.get(), buffer_.data() + end_, static_cast<unsigned>(buffer_.size() - 1 - end_));
  int code = Z_OK;
  ::gzerror(file_.get(), &code);
  if (code == Z_ERRNO) fail("cannot read on: " + std::generic_category().message(errno));
  if (code == Z_MEM_ERROR) fail("cannot read on: out of memory");
  if (got > 0) end_ += got;
  cut_ = got < 0 || (code != Z_OK && code != Z_STREAM_END);
  at_end_ = cut_ || got <= 0;
}

/// Returns the end of the line that begins at begin_, on a newline; null after the last line.
const char* CriteoReader::line_end() {
  for (std::size_t looked = 0;;) {
    char* const from = buffer_.data() + begin_ + looked;
    if (const void* found = std::memchr(from, '\n', end_ - begin_ - looked))
      return static_cast<const char*>(found);
    looked = end_ - begin_;
    if (at_end_) break;
    if (looked > kLongestLine) {
      if (!skipping_) faults_.add(RowFault::kTooLong, lines_ + 1);
      skipping_ = true;
      begin_ = end_;
      looked = 0;
    }
    fill();
  }
  if (cut_) {
    // The bytes before the break may be part of a row, or a row whose last field is truncated.
    if (skipping_) ++lines_;  // a separate line, already counted as too long
    faults_.add(RowFault::kCut, ++lines_);
    begin_ = end_;
    cut_ = skipping_ = false;
  }
  if (begin_ == end_ && !skipping_) return nullptr;
  buffer_[end_] = '\n';
  return buffer_.data() + end_;
}

std::size_t CriteoReader::read(std::span<CriteoRow> out) {
  std::size_t rows = 0;
  while (rows < out.size()) {
    const char* const end = line_end();
    if (end == nullptr) break;
    const char* begin = buffer_.data() + begin_;
    begin_ = std::min(static_cast<std::size_t>(end - buffer_.data()) + 1, end_);
    ++lines_;
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (lines_ == 1 && std::string_view(begin, end - begin).starts_with(kByteOrderMark))
      begin += kByteOrderMark.size();
    if (begin == end && !skipping_) {
      ++empty_;
      continue;
    }
    for (; empty_ > 0; --empty_) faults_.add(RowFault::kFieldCount, lines_ - empty_);
    if (skipping_) {
      skipping_ = false;
    } else if (parse_criteo_row(begin, end, out[rows])) {
      ++rows;
    } else {
      faults_.add(diagnose_criteo_row({begin, static_cast<std::size_t>(end - begin)}), lines_);
    }
  }
  return rows;
}

}  // namespace tenon::ctr
