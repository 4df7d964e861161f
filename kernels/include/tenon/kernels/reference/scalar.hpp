// Reading and writing one element of a storage type in its arithmetic type, for the references.
#pragma once

#include <tenon/kernels/bf16.hpp>

namespace tenon::kernels::reference {

template <class S>
TENON_BOTH constexpr Arith<S> get(S value) {
  return value;
}
template <>
TENON_BOTH constexpr float get(Bf16 value) {
  return to_float(value);
}

template <class S>
S put(Arith<S> value) {
  return value;
}
template <>
inline Bf16 put<Bf16>(float value) {
  return to_bf16(value);
}

}  // namespace tenon::kernels::reference
