// Argument handling shared by the devices of this tree: dispatch on the storage type and checks of views.
// Each device words its own refusals and knows which memory it reaches: it defines the four functions
// declared here. Does not use fmt, which nvcc does not accept.
#pragma once

#include <tenon/error.hpp>
#include <tenon/kernels/bf16.hpp>
#include <tenon/kernels/half.hpp>
#include <tenon/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace tenon::device_arguments {

[[noreturn]] void refuse_dtype(DType dtype, const char* where);
[[noreturn]] void refuse_view(const TensorView& view, DType dtype, std::int64_t elements, const char* where,
                              const char* name);
bool reaches(MemorySpace space);
const char* device_name();

/// "device NAME: WHERE: WHAT", as an error of the run.
[[noreturn]] inline void refuse(const char* where, const std::string& what) {
  fail_run(std::string("device ") + device_name() + ": " + where + ": " + what);
}
/// "device NAME: WHAT", for requests that are refused before anything runs.
[[noreturn]] inline void refuse_config(const std::string& what) {
  fail_config(std::string("device ") + device_name() + ": " + what);
}

/// Refuses an index outside [lowest, bound), found at position `at` of an argument.
[[noreturn]] inline void refuse_index(const char* where, const char* name, std::int64_t at,
                                      std::int32_t index, std::int32_t lowest, std::int64_t bound) {
  refuse(where, std::string(name) + "[" + std::to_string(at) + "] is " + std::to_string(index) +
                    ", expected less than " + std::to_string(bound) +
                    (lowest == 0 ? " and not negative" : ""));
}

template <class S>
inline constexpr DType kDTypeOf = std::is_same_v<S, float>           ? DType::kF32
                                  : std::is_same_v<S, double>        ? DType::kF64
                                  : std::is_same_v<S, std::int32_t>  ? DType::kI32
                                  : std::is_same_v<S, std::uint8_t>  ? DType::kU8
                                  : std::is_same_v<S, kernels::Half> ? DType::kF16
                                                                     : DType::kBF16;

/// Calls body(std::type_identity<S>) for f32, f64 and bf16; other types are refused.
template <class Body>
decltype(auto) with_storage(DType dtype, const char* where, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body(std::type_identity<float>{});
    case DType::kF64:
      return body(std::type_identity<double>{});
    case DType::kBF16:
      return body(std::type_identity<kernels::Bf16>{});
    default:
      refuse_dtype(dtype, where);
  }
}

/// The same for types that are their own arithmetic type (parameters, optimizer state).
template <class Body>
decltype(auto) with_arithmetic(DType dtype, const char* where, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body(std::type_identity<float>{});
    case DType::kF64:
      return body(std::type_identity<double>{});
    default:
      refuse_dtype(dtype, where);
  }
}

/// Checks dtype and element count, and that the elements are in this device's memory.
inline void check_view(const TensorView& view, DType dtype, std::int64_t elements, const char* where,
                       const char* name) {
  if (view.dtype != dtype || view.elements() != elements ||
      (elements > 0 && (view.data == nullptr || !reaches(view.space)))) {
    refuse_view(view, dtype, elements, where, name);
  }
}

/// Typed pointer after check_view().
template <class S>
S* checked(const TensorView& view, std::int64_t elements, const char* where, const char* name) {
  check_view(view, kDTypeOf<S>, elements, where, name);
  return view.as<S>();
}

/// The same, or null where the caller passed an empty view.
template <class S>
S* checked_or_null(const TensorView& view, std::int64_t elements, const char* where, const char* name) {
  return view.data == nullptr ? nullptr : checked<S>(view, elements, where, name);
}

template <class T>
inline constexpr DType kComplexOf = std::is_same_v<T, double> ? DType::kC128 : DType::kC64;

/// Typed pointer to the reals of `elements` complex numbers in this device's memory.
template <class T>
T* checked_complex(const TensorView& view, std::int64_t elements, const char* where, const char* name) {
  check_view(view, kComplexOf<T>, elements, where, name);
  return view.as<T>();
}

/// checked_complex() of a view of `reals` reals in pairs, or checked() of one by one.
template <class T>
T* checked_reals(const TensorView& view, std::int64_t reals, const char* where, const char* name) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if (dtype_is_complex(view.dtype)) return checked_complex<T>(view, reals / 2, where, name);
  }
  return checked<T>(view, reals, where, name);
}

// Scratch of at least `needed` bytes; none need not be there. Families word its refusal in three ways.

inline bool holds_scratch(const TensorView& scratch, std::size_t needed) {
  return needed == 0 || (scratch.data != nullptr && reaches(scratch.space) &&
                         static_cast<std::size_t>(scratch.bytes()) >= needed);
}
inline std::int64_t scratch_bytes_of(const TensorView& scratch) {
  return scratch.data == nullptr ? 0 : scratch.bytes();
}

inline void check_scratch(const TensorView& scratch, std::size_t needed, const char* where) {
  if (static_cast<std::size_t>(scratch_bytes_of(scratch)) < needed) {
    refuse(where, "scratch has " + std::to_string(scratch_bytes_of(scratch)) + " bytes, expected " +
                      std::to_string(needed));
  }
}
/// In the words of other views.
inline void check_scratch_view(const TensorView& scratch, std::size_t needed, const char* where) {
  if (!holds_scratch(scratch, needed))
    refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(needed), where, "scratch");
}
/// `source`: the function of the family that tells a caller the size.
inline void check_scratch_as(const TensorView& scratch, std::size_t needed, const char* where,
                             const char* source) {
  if (!holds_scratch(scratch, needed)) {
    refuse(where, "scratch is " + std::to_string(scratch_bytes_of(scratch)) + " bytes, expected " +
                      std::to_string(needed) + " bytes of the device's memory, as " + source + " says");
  }
}

/// Extent of the last dimension and the product of the others.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
};
inline Matrix as_matrix(const TensorView& view) {
  const int rank = view.shape.rank();
  const std::int64_t columns = rank == 0 ? 1 : view.shape[rank - 1];
  return {columns == 0 ? 0 : view.elements() / columns, columns};
}

}  // namespace tenon::device_arguments
