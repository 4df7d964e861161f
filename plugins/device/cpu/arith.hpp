// Conversion from an element's storage type to its arithmetic type, and back, rounded to nearest.
#pragma once

#include <tenon/kernels/bf16.hpp>

#include <type_traits>

namespace tenon::cpu {

template <class S>
kernels::Arith<S> widen(S value) {
  if constexpr (std::is_same_v<S, kernels::Bf16>) {
    return kernels::to_float(value);
  } else {
    return value;
  }
}

template <class S>
S narrow(kernels::Arith<S> value) {
  if constexpr (std::is_same_v<S, kernels::Bf16>) {
    return kernels::to_bf16(value);
  } else {
    return value;
  }
}

}  // namespace tenon::cpu
