// Shared by the operator families of this device: the kernel set in use, dispatch on the storage type, checks
// of views and the block sizes of parallel loops. Blocks depend on shapes alone, so results do not depend on
// the team.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/table.hpp>
#include <tenon/parallel.hpp>

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

using device_arguments::as_matrix;
using device_arguments::checked;
using device_arguments::checked_or_null;
using device_arguments::kDTypeOf;
using device_arguments::Matrix;
using device_arguments::refuse_dtype;
using device_arguments::refuse_view;
using device_arguments::with_arithmetic;
using device_arguments::with_storage;

/// Parameters, statistics and sums that go with activations of type S.
template <class S>
inline constexpr DType kArithDType = kDTypeOf<kernels::Arith<S>>;

/// Throws Error(kRun) that names the first index outside [lowest, bound).
void check_indices(const std::int32_t* indices, std::int64_t count, std::int32_t lowest, std::int64_t bound,
                   const char* where, const char* name);

/// Elements per block of flat loops: enough work to justify waking a thread.
inline constexpr std::int64_t kFlatBlock = 16384;
/// Elements of the buffers that loops keep on the stack.
inline constexpr std::int64_t kStackElements = 1024;
/// Columns per block of loops that own columns and walk all rows.
inline constexpr std::int64_t kColumnBlock = 64;

/// Rows per block of loops over rows of `columns` elements.
inline std::int64_t row_block(std::int64_t columns) {
  return std::max<std::int64_t>(1, kFlatBlock / std::max<std::int64_t>(1, columns));
}

}  // namespace tenon::cpu
