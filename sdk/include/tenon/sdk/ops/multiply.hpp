// Operator family of a device for products of elements: values with values, rows with one factor each, and
// pairs of elements with rotations. Optional: a device offers it to the layers that ask for it. Conventions
// are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

TENON_ABI_BEGIN

class MultiplyOps {
 public:
  static constexpr const char* kId = "tenon.device.multiply/1";
  virtual ~MultiplyOps();
  /// y (+)= a * b, element by element, rounded once; y may be a or b.
  virtual void multiply(TensorView a, TensorView b, TensorView y, bool accumulate) = 0;
  /// x[r, :] *= factors[r]; x: [rows, columns], factors: [rows] in f32 (f64).
  virtual void multiply_rows(TensorView x, TensorView factors) = 0;
  /// Rotates the pairs (j, j + half) of every head of x. x, y: [rows, heads * 2 half]; table: [lines, 2,
  /// half] in f32 (f64), the cosines and then the sines of a line's angles. Row r has line positions[r] (i32
  /// [rows]), or r modulo lines where positions is empty:
  ///   y[j] (+)= x[j] cos - x[j + half] sin,  y[j + half] (+)= x[j + half] cos + x[j] sin
  /// and with -sin for sin where `inverse`, which is the adjoint, too. y may be x.
  virtual void rotate(TensorView x, TensorView table, TensorView positions, bool inverse, TensorView y,
                      bool accumulate) = 0;
};

TENON_ABI_END
