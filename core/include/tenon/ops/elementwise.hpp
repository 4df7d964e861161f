// Operator family of a device for maps over flat tensors. Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

TENON_ABI_BEGIN

/// Maps over flat tensors of equal length; y and x may be the same memory.
class Elementwise {
 public:
  static constexpr const char* kId = "tenon.device.elementwise/1";
  virtual ~Elementwise();
  virtual void fill(TensorView y, double value) = 0;
  virtual void scale(TensorView y, double factor) = 0;
  virtual void axpy(double a, TensorView x, TensorView y) = 0;          ///< y += a * x
  virtual void lerp(TensorView y, TensorView x, double weight) = 0;     ///< y += weight * (x - y)
  virtual void subtract(TensorView a, TensorView b, TensorView y) = 0;  ///< y = a - b
  /// y = a - b, but 0 where b is not a number: a target that does not count. Returns how many do.
  virtual std::int64_t subtract_targets(TensorView a, TensorView b, TensorView y) = 0;
  virtual void add(TensorView a, TensorView b, TensorView y) = 0;  ///< y = a + b
  virtual void convert(TensorView x, TensorView y) = 0;            ///< between dtypes, round to nearest even
  /// y[r, :] (+)= x[r, :] + bias[:]
  virtual void add_bias(TensorView x, TensorView bias, TensorView y) = 0;
};

TENON_ABI_END
