// Arguments of products of elements (family MultiplyOps): sizes that belong together. Does not use fmt, which
// nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/sdk/ops/multiply.hpp>

namespace tenon::device_arguments {

/// Rows of `heads` heads of 2 `half` elements, and a table of `lines` lines.
struct RotationSizes {
  std::int64_t rows = 0, heads = 0, half = 0, lines = 0;
  std::int64_t pairs() const { return rows * heads * half; }
};

inline RotationSizes rotation_sizes(const TensorView& x, const TensorView& table, const TensorView& positions,
                                    const char* where) {
  const Matrix matrix = as_matrix(x);
  const bool pairs = table.shape.rank() == 3 && table.shape[1] == 2 && table.shape[2] > 0;
  if (!pairs || matrix.columns % (2 * table.shape[2]) != 0) {
    refuse(where, "expected a table [lines, 2, half] and x of whole heads of 2 half columns, found " +
                      table.shape.text() + " and " + x.shape.text());
  }
  if (matrix.rows > 0 && table.shape[0] == 0) refuse(where, "the table has no line");
  if (!positions.empty() && positions.elements() != matrix.rows) {
    refuse(where, "expected one position per row of x " + x.shape.text() + ", found positions " +
                      positions.shape.text());
  }
  return {matrix.rows, matrix.columns / (2 * table.shape[2]), table.shape[2], table.shape[0]};
}

}  // namespace tenon::device_arguments
