// Streams the rows of a Criteo TSV file, plain or gzip; memory does not grow with the file. Malformed lines
// are skipped and counted by cause, and the line numbers of the first of each are kept. A byte order mark
// before the first row and empty lines after the last one, as editors and exports write them, are neither
// rows nor faults.
#pragma once

#include "criteo_row.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct gzFile_s;

namespace tenon::ctr {

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
