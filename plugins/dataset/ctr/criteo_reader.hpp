// Criteo's TSV files: a row as it is stored, and a reader that streams the rows of a file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct gzFile_s;

namespace tenon::ctr {

// One row of Criteo's TSV: label, 13 whole numbers, 26 hexadecimal categories, tab-separated, empty =
// missing. A line is either a complete row or rejected; a partial parse could shift columns.

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

// Streams the rows of a Criteo TSV file, plain or gzip; memory does not grow with the file. Malformed lines
// are skipped and counted by cause, and the line numbers of the first of each are kept. A byte order mark
// before the first row and empty lines after the last one, as editors and exports write them, are neither
// rows nor faults.

/// Counts of the skipped lines of a file.
struct FaultCounts {
  static constexpr std::size_t kShown = 3;
  std::array<std::int64_t, kRowFaults> counts{};
  std::array<std::array<std::int64_t, kShown>, kRowFaults> lines{};  ///< the first of each, from 1; 0 = none

  void add(RowFault fault, std::int64_t line);
  std::int64_t total() const;
  std::int64_t count(RowFault fault) const { return counts[static_cast<std::size_t>(fault)]; }
  /// "2 with a NUL byte (lines 3, 9), 1 cut off ... (line 12)"
  std::string text() const;
};

class CriteoReader {
 public:
  static constexpr std::size_t kBuffer = 1 << 20;
  /// Throws Error(kConfig) when the file cannot be opened. Reads `buffer` bytes at once, which must be more
  /// than a line has.
  explicit CriteoReader(const std::string& path, std::size_t buffer = kBuffer);
  ~CriteoReader();
  CriteoReader(const CriteoReader&) = delete;
  CriteoReader& operator=(const CriteoReader&) = delete;

  /// Reads the next rows, as many as `out` holds or the file has left, and returns their number; 0 = the end.
  /// Throws Error(kConfig) on a read error.
  std::size_t read(std::span<CriteoRow> out);
  const FaultCounts& faults() const { return faults_; }
  /// Number of lines so far that are rows or faults.
  std::int64_t lines() const { return lines_ - empty_; }

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  [[noreturn]] void fail(const std::string& text) const;
  void fill();
  const char* line_end();

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::vector<char> buffer_;         ///< one byte longer than the largest read
  std::size_t begin_ = 0, end_ = 0;  ///< range of bytes read but not yet parsed
  std::int64_t lines_ = 0;
  std::int64_t empty_ = 0;  ///< consecutive empty lines up to the last one read
  bool at_end_ = false, cut_ = false, skipping_ = false;
  FaultCounts faults_;
};

}  // namespace tenon::ctr
