// Views of complex numbers, as kernels take them: pairs of reals.
#pragma once

#include "arguments.hpp"

namespace tenon::cuda {

template <class T>
inline constexpr DType kComplexOf = std::is_same_v<T, double> ? DType::kC128 : DType::kC64;

/// The reals of so many complex elements in this device's memory.
template <class T>
T* checked_complex(const TensorView& view, std::int64_t elements, const char* where, const char* name) {
  if (view.dtype != kComplexOf<T> || view.elements() != elements || (view.data == nullptr && elements > 0) ||
      (elements > 0 && view.space != MemorySpace::kCuda))
    refuse_view(view, kComplexOf<T>, elements, where, name);
  return view.as<T>();
}

/// The same of a view of `reals` reals, in pairs or one by one.
template <class T>
T* checked_reals(const TensorView& view, std::int64_t reals, const char* where, const char* name) {
  if constexpr (std::is_same_v<T, Arith<T>>) {
    if (dtype_is_complex(view.dtype)) return checked_complex<T>(view, reals / 2, where, name);
  }
  return checked<T>(view, reals, where, name);
}

}  // namespace tenon::cuda
