// What the operator families of this device share: the kernel set in use, dispatch on the storage type,
// checks of views and the block sizes of parallel loops. Blocks depend on shapes alone, so results do not
// depend on the team.
#pragma once

#include <tenon/error.hpp>
#include <tenon/kernels/table.hpp>
#include <tenon/parallel.hpp>
#include <tenon/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tenon::cpu {

/// The kernels that open() chose. Tables are constants: copies of this struct stay valid.
struct Kernels {
  const kernels::KernelTable* table = nullptr;
  const kernels::DoubleTable* f64 = nullptr;
  bool onednn = false;  ///< products of f32 and bf16 go to oneDNN

  template <class S>
  const kernels::Ops<S>& ops() const {
    if constexpr (std::is_same_v<S, float>) {
      return table->f32;
    } else if constexpr (std::is_same_v<S, double>) {
      return f64->f64;
    } else {
      static_assert(std::is_same_v<S, kernels::Bf16>);
      return table->bf16;
    }
  }
};

template <class S>
inline constexpr DType kDTypeOf = std::is_same_v<S, float>    ? DType::kF32
                                  : std::is_same_v<S, double> ? DType::kF64
                                                              : DType::kBF16;
/// Parameters, statistics and sums that go with activations of type S.
template <class S>
inline constexpr DType kArithDType = kDTypeOf<kernels::Arith<S>>;

[[noreturn]] void refuse_dtype(DType dtype, const char* where);
[[noreturn]] void refuse_view(const TensorView& view, DType dtype, std::int64_t elements, const char* where,
                              const char* name);

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

/// Typed pointer after a check of dtype and element count.
template <class S>
S* checked(const TensorView& view, std::int64_t elements, const char* where, const char* name) {
  constexpr DType dtype = std::is_same_v<S, std::int32_t>   ? DType::kI32
                          : std::is_same_v<S, std::uint8_t> ? DType::kU8
                                                            : kDTypeOf<S>;
  if (view.dtype != dtype || view.elements() != elements || (view.data == nullptr && elements > 0))
    refuse_view(view, dtype, elements, where, name);
  return view.as<S>();
}

/// The same, or null where the caller passed an empty view.
template <class S>
S* checked_or_null(const TensorView& view, std::int64_t elements, const char* where, const char* name) {
  return view.data == nullptr ? nullptr : checked<S>(view, elements, where, name);
}

/// Throws Error(kRun) that names the first index outside [lowest, bound).
void check_indices(const std::int32_t* indices, std::int64_t count, std::int32_t lowest, std::int64_t bound,
                   const char* where, const char* name);

/// Elements per block of flat loops: enough work to be worth waking a thread for.
inline constexpr std::int64_t kFlatBlock = 16384;
/// Elements of the buffers that loops keep on the stack.
inline constexpr std::int64_t kStackElements = 1024;
/// Columns per block of loops that own columns and walk all rows.
inline constexpr std::int64_t kColumnBlock = 64;

/// Rows per block of loops over rows of `columns` elements.
inline std::int64_t row_block(std::int64_t columns) {
  return std::max<std::int64_t>(1, kFlatBlock / std::max<std::int64_t>(1, columns));
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

}  // namespace tenon::cpu
