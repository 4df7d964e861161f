// Interface to an array in a file, from which data sets read samples.
#pragma once

#include <tenon/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tenon::npy {

/// An array of at least one dimension and one element; the first extent counts samples.
class ArrayFile {
 public:
  virtual ~ArrayFile() = default;
  /// Name in messages, and the file that holds the array.
  virtual const std::string& path() const = 0;
  virtual const std::string& file() const { return path(); }
  /// f32, f64, i32, i64, u8 or bool: the narrowest that holds every element.
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;
  std::int64_t samples() const { return shape()[0]; }
  Shape sample_shape() const { return Shape(shape().extents().subspan(1)); }
  std::int64_t elements_per_sample() const { return sample_shape().elements(); }
  /// Reads samples [first, first + count) as `dtype`, in C order: real numbers stay real. Throws FileError or
  /// Error(kRun) when the file can no longer be read. Thread-safe.
  virtual void read(std::int64_t first, std::int64_t count, DType dtype, std::byte* out) const = 0;
};

}  // namespace tenon::npy
