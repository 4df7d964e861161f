// .npy files (NumPy's format, versions 1.0, 2.0 and 3.0), little-endian and in C order: read in pieces,
// written whole. Header and size are checked when a file is opened. A file that shrinks afterwards causes an
// error, not a crash.
#pragma once

#include <tenon/files.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// The content of a header.
struct NpyHeader {
  std::string descr;  ///< "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Parses the Python dictionary of a header. Throws Error(kConfig) that says what is wrong, without the file.
NpyHeader parse_npy_header(std::string_view text);

/// An array of at least one dimension and one element.
class NpyFile {
 public:
  /// `types`: those that the caller accepts, of f16, f32, f64, i32, i64, u8 and bool. `what` begins every
  /// message: "data file". Throws Error(kConfig) with file, expected and found.
  NpyFile(FileSystem& files, const std::string& path, std::string_view what, std::span<const DType> types);

  const std::string& path() const { return path_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  /// The first extent, and the others, for callers whose rows are samples.
  std::int64_t samples() const { return shape_[0]; }
  Shape sample_shape() const { return Shape(shape_.extents().subspan(1)); }
  std::int64_t elements_per_sample() const { return sample_shape().elements(); }

  /// Elements [first, first + out.size() / element size) of the array; throws FileError. Thread-safe.
  void read(std::int64_t first, std::span<std::byte> out) const;

 private:
  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  DType dtype_ = DType::kF32;
  Shape shape_;
  std::int64_t offset_ = 0;
};

/// Writes an array of host memory as version 1.0; `path` always holds the old file or the whole new one.
/// Types: those of NpyFile.
void write_npy(FileSystem& files, const std::string& path, const TensorView& array);

TENON_ABI_END
