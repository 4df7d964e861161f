// An array in a file, of which data sets read samples.
#pragma once

#include <tenon/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tenon::npy {

/// Of at least one dimension and one element; the first extent counts samples.
class ArrayFile {
 public:
  virtual ~ArrayFile() = default;
  /// As messages name it; and the file that holds it.
  virtual const std::string& path() const = 0;
  virtual const std::string& file() const { return path(); }
  /// f32, f64, i32, i64, u8 or bool, the narrowest that holds every element.
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;
  std::int64_t samples() const { return shape()[0]; }
  Shape sample_shape() const { return Shape(shape().extents().subspan(1)); }
  std::int64_t elements_per_sample() const { return sample_shape().elements(); }
  /// Elements of samples [first, first + count) as `dtype`, in C order: real numbers stay real. Throws
  /// FileError or Error(kRun) where the file cannot be read any more. Thread-safe.
  virtual void read(std::int64_t first, std::int64_t count, DType dtype, std::byte* out) const = 0;
};

}  // namespace tenon::npy
