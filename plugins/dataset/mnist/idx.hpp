// IDX files (LeCun's format for MNIST), plain or gzip: a magic number {0, 0, type, dimensions}, one
// big-endian uint32 per extent, then the elements. Only unsigned bytes (type 0x08), which is all that MNIST
// and its kin use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::mnist {

struct IdxArray {
  std::vector<std::int64_t> extents;
  std::vector<std::uint8_t> bytes;  ///< row-major
};

/// Reads a whole file that must have `dimensions` extents. `what` names its content in messages: "images".
/// Throws Error(kConfig) with the file and the expected and actual values.
IdxArray read_idx(const std::string& path, int dimensions, const char* what);

}  // namespace tenon::mnist
