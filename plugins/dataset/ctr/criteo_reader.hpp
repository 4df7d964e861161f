// Rows of a Criteo TSV file, plain or gzip, as a stream: memory does not grow with the file. Lines that are
// no rows are left out and counted by cause, the first of each with their line numbers. A byte order mark
// before the first row and empty lines after the last one, as editors and exports leave them, are neither
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

/// What was left out of a file.
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
  /// Throws Error(kConfig) when the file cannot be opened. `buffer` bytes are read at once, more than a line
  /// has.
  explicit CriteoReader(const std::string& path, std::size_t buffer = kBuffer);
  ~CriteoReader();
  CriteoReader(const CriteoReader&) = delete;
  CriteoReader& operator=(const CriteoReader&) = delete;

  /// The next rows, as many as `out` holds or the file has left; 0 = the end. Throws Error(kConfig) when the
  /// system cannot read on.
  std::size_t read(std::span<CriteoRow> out);
  const FaultCounts& faults() const { return faults_; }
  /// Lines up to here that are rows or faults.
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
  std::vector<char> buffer_;         ///< one byte longer than what is read into it
  std::size_t begin_ = 0, end_ = 0;  ///< what is read and not yet looked at
  std::int64_t lines_ = 0;
  std::int64_t empty_ = 0;  ///< lines in a row without a byte, up to the one that was read last
  bool at_end_ = false, cut_ = false, skipping_ = false;
  FaultCounts faults_;
};

}  // namespace tenon::ctr
