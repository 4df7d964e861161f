// Complex numbers as pairs of reals: updates, norms and scales treat both alike.
#pragma once

#include <tenon/tensor.hpp>

namespace tenon::graph {

/// The same memory as a flat tensor of f32 or f64; other types as they are.
inline TensorView as_reals(TensorView view) {
  if (!dtype_is_complex(view.dtype)) return view;
  view.dtype = view.dtype == DType::kC64 ? DType::kF32 : DType::kF64;
  view.shape = Shape{view.elements() * 2};
  return view;
}

}  // namespace tenon::graph
