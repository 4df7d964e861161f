// Reading and writing one element of a storage type in its arithmetic type, in kernel bodies.
#pragma once

#include <tenon/kernels/bf16.hpp>

namespace tenon::kernels::cuda {

TENON_BOTH inline float get(float x) {
  return x;
}
TENON_BOTH inline double get(double x) {
  return x;
}
TENON_BOTH inline float get(Bf16 x) {
  return to_float(x);
}

/// Rounded once, to nearest.
template <class S>
TENON_BOTH S put(Arith<S> x) {
  if constexpr (sizeof(S) == sizeof(Bf16)) {
    return to_bf16(x);
  } else {
    return x;
  }
}

}  // namespace tenon::kernels::cuda
