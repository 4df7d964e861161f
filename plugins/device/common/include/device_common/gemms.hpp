// Checks of matrix products (family Blas): of a spec, and of the tensors of a call. Does not use fmt, which
// nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/ops/dense.hpp>

#include <string>

namespace tenon::device_arguments {

inline void check_gemm_extents(const GemmSpec& spec) {
  if (spec.m >= 0 && spec.n >= 0 && spec.k >= 0 && spec.batch >= 0) return;
  refuse_config("gemm: extents must not be negative, found m = " + std::to_string(spec.m) +
                ", n = " + std::to_string(spec.n) + ", k = " + std::to_string(spec.k) +
                ", batch = " + std::to_string(spec.batch));
}

/// Number formats that the kernels of this tree multiply: f32 and bf16 in any mixture, or f64 throughout.
inline bool kernels_compute(const GemmSpec& spec) {
  const auto all = [&](auto is) { return is(spec.a) && is(spec.b) && is(spec.c); };
  return all([](DType dtype) { return dtype == DType::kF64; }) ||
         all([](DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; });
}

/// `reason`: why no library computes it either, or "".
[[noreturn]] inline void refuse_gemm(const GemmSpec& spec, const std::string& reason) {
  refuse_config("gemm of " + std::string(dtype_name(spec.a)) + " and " + std::string(dtype_name(spec.b)) +
                " into " + std::string(dtype_name(spec.c)) + " cannot be computed" +
                (reason.empty() ? "" : " (" + reason + ")") +
                "; use f32 and bf16 in any mixture, or f64 throughout");
}

/// Refuses views that do not match the specification; checks bias only where the specification has one.
inline void check_gemm(const GemmSpec& spec, const TensorView& a, const TensorView& b, const TensorView& c,
                       const TensorView& bias, const TensorView& scratch, std::size_t scratch_bytes) {
  constexpr const char* kWhere = "gemm";
  check_view(a, spec.a, spec.batch * spec.m * spec.k, kWhere, "A");
  check_view(b, spec.b, spec.batch * spec.k * spec.n, kWhere, "B");
  check_view(c, spec.c, spec.batch * spec.m * spec.n, kWhere, "C");
  if (spec.bias) check_view(bias, spec.a == DType::kF64 ? DType::kF64 : DType::kF32, spec.n, kWhere, "bias");
  check_scratch_view(scratch, scratch_bytes, kWhere);
}

}  // namespace tenon::device_arguments
