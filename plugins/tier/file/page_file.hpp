// Pages of rows in a file, as the rows see them: the interface that tests replace by a file with faults. An
// error belongs to its transfer, since some pages of one call may arrive where others do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace tenon::tier_file {

/// Files without the page cache want places, sizes and addresses that are multiples of this.
constexpr std::size_t kPageBytes = 4096;

/// A read met the end of the file: somebody has shortened it.
constexpr int kEndOfFile = -1;

struct PageTransfer {
  std::int64_t offset = 0;    ///< in the file
  std::byte* data = nullptr;  ///< aligned to kPageBytes, as are offset and bytes
  std::size_t bytes = 0;
  int error = 0;  ///< set by the call: 0, an errno, or kEndOfFile
};

inline std::string error_text(int error) {
  return error == kEndOfFile ? "the file ends before them: somebody has shortened it" : std::strerror(error);
}

/// Any number of threads at once, each with pages of its own.
class PageFile {
 public:
  virtual ~PageFile() = default;
  /// Returns when all have ended, and sets the error of each.
  virtual void read(std::span<PageTransfer> transfers) = 0;
  virtual void write(std::span<PageTransfer> transfers) = 0;
};

}  // namespace tenon::tier_file
