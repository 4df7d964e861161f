// Views of complex numbers as kernels read them: pairs of reals.
#pragma once

#include "arguments.hpp"

namespace tenon::cuda {

using device_arguments::checked_complex;

/// checked_complex of a view of `reals` reals, in pairs or one by one.
template <class T>
T* checked_reals(const TensorView& view, std::int64_t reals, const char* where, const char* name) {
  if constexpr (std::is_same_v<T, Arith<T>>) {
    if (dtype_is_complex(view.dtype)) return checked_complex<T>(view, reals / 2, where, name);
  }
  return checked<T>(view, reals, where, name);
}

}  // namespace tenon::cuda
