// Arguments of maps over flat tensors (family Elementwise). Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <initializer_list>

namespace tenon::device_arguments {

/// Calls body(std::type_identity<T>) where dtype is that of integers, which are filled as they are; returns
/// false for other types.
template <class Body>
bool with_integer(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kI8:
      body(std::type_identity<std::int8_t>{});
      return true;
    case DType::kU8:
      body(std::type_identity<std::uint8_t>{});
      return true;
    case DType::kI32:
      body(std::type_identity<std::int32_t>{});
      return true;
    case DType::kI64:
      body(std::type_identity<std::int64_t>{});
      return true;
    default:
      return false;
  }
}

/// Calls body(y, elements) with y as a pointer, after a check that the inputs match it.
template <class Body>
void with_map(const TensorView& y, std::initializer_list<TensorView> inputs, const char* where, Body&& body) {
  with_storage(y.dtype, where, [&](auto tag) {
    using S = typename decltype(tag)::type;
    const std::int64_t n = y.elements();
    S* const out = checked<S>(y, n, where, "y");
    for (const TensorView& input : inputs) checked<S>(input, n, where, "an input");
    body(out, n);
  });
}

/// Elements that a conversion of x to y writes.
inline std::int64_t converted_elements(const TensorView& x, const TensorView& y) {
  const std::int64_t n = x.elements();
  if (n != y.elements()) refuse_view(y, y.dtype, n, "convert", "y");
  return n;
}

}  // namespace tenon::device_arguments
