// Order of sums on all devices of this tree, and arguments of sums over rows (family ReduceOps). Does not use
// fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/reduce.hpp>

namespace tenon::device_arguments {

/// Blocks whose sums are added in a tree; the trees' results are added in order. Sums have the same bits on
/// all devices because these are constants.
inline constexpr std::int64_t kSpanBlocks = 2048;
inline constexpr std::int64_t kSpan = kSpanBlocks * kernels::kReduceBlock;

/// x [rows, columns] and out [columns]; without pointers where there are no columns.
template <class S>
struct RowSums {
  RowSums(const TensorView& x_view, const TensorView& out_view, const char* where)
      : columns(out_view.elements()) {
    if (columns == 0) return;
    rows = x_view.elements() / columns;
    x = checked<S>(x_view, rows * columns, where, "x");
    out = checked<kernels::Arith<S>>(out_view, columns, where, "out");
  }

  std::int64_t rows = 0, columns = 0;
  const S* x = nullptr;
  kernels::Arith<S>* out = nullptr;
};

}  // namespace tenon::device_arguments
