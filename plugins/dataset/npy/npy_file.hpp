// A .npy file (NumPy's format, versions 1.0, 2.0 and 3.0), little-endian and in C order, read by piece.
// Header and size are checked when it is opened. A file that shrinks afterwards gives an error, not a crash.
#pragma once

#include <tenon/files.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::npy {

/// What the text of a header says.
struct NpyHeader {
  std::string descr;  ///< "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Parses the Python dictionary of a header. Throws Error(kConfig) that says what is wrong, without the file.
NpyHeader parse_header(std::string_view text);

class NpyFile {
 public:
  /// Throws Error(kConfig) with file, expected and found.
  NpyFile(FileSystem& files, const std::string& path);

  const std::string& path() const { return path_; }
  DType dtype() const { return dtype_; }
  /// The first extent counts samples.
  std::int64_t samples() const { return samples_; }
  const Shape& sample_shape() const { return sample_shape_; }
  std::int64_t elements_per_sample() const { return sample_shape_.elements(); }

  /// Elements [first, first + out.size() / element size) of the array; throws FileError. Thread-safe.
  void read(std::int64_t first, std::span<std::byte> out) const;

 private:
  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  DType dtype_ = DType::kF32;
  std::int64_t samples_ = 0, offset_ = 0;
  Shape sample_shape_;
};

}  // namespace tenon::npy
