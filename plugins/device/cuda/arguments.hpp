// Shared by the operator families of this device: dispatch on the storage type and checks of views, as on the
// other devices, and the error when memory runs out.
#pragma once

#include "device_common/arguments.hpp"
#include "queue.hpp"

#include <string>

namespace tenon::cuda {

using kernels::Arith;
using kernels::Bf16;

using device_arguments::as_matrix;
using device_arguments::checked;
using device_arguments::checked_or_null;
using device_arguments::kDTypeOf;
using device_arguments::Matrix;
using device_arguments::refuse_dtype;
using device_arguments::refuse_view;
using device_arguments::with_arithmetic;
using device_arguments::with_storage;

/// `why`: the library's own text, or "".
[[noreturn]] void refuse_memory(std::size_t bytes, std::size_t free, std::size_t total,
                                const std::string& why);

}  // namespace tenon::cuda
