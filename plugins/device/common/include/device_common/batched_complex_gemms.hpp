// Arguments of complex products per mode (family BatchedComplexGemms): the check of a spec, and the tensors
// of a call as pointers. Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/gemm.hpp>
#include <tenon/ops/spectral.hpp>

#include <string>

namespace tenon::device_arguments {

inline constexpr const char* kBatchedComplexGemm = "mode product";

/// Calls body(std::type_identity<T>) with the real type of a checked spec.
template <class Body>
decltype(auto) with_batched_complex_gemm(const BatchedComplexGemmSpec& spec, Body&& body) {
  if (spec.batch < 0 || spec.in < 0 || spec.out < 0 || spec.modes < 0)
    refuse_config(std::string(kBatchedComplexGemm) + ": no extent may be negative");
  if (spec.dtype == DType::kC64) return body(std::type_identity<float>{});
  if (spec.dtype == DType::kC128) return body(std::type_identity<double>{});
  refuse_config(std::string(kBatchedComplexGemm) + ": expected c64 or c128, found " +
                std::string(dtype_name(spec.dtype)));
}

template <class T>
class BatchedComplexGemmShape {
 public:
  explicit BatchedComplexGemmShape(const BatchedComplexGemmSpec& spec) {
    args_.batch = spec.batch, args_.in = spec.in, args_.out = spec.out, args_.modes = spec.modes;
  }

  /// Without pointers.
  const kernels::BatchedComplexGemmArgs<T>& args() const { return args_; }

  kernels::BatchedComplexGemmArgs<T> forward(const TensorView& x, const TensorView& w,
                                             const TensorView& y) const {
    auto args = args_;
    args.x = lines(x, args.batch * args.in, "x");
    args.w = weights(w, "w");
    args.y = lines(y, args.batch * args.out, "y");
    return args;
  }
  kernels::BatchedComplexGemmArgs<T> backward_input(const TensorView& w, const TensorView& dy,
                                                    const TensorView& dx) const {
    auto args = args_;
    args.w = weights(w, "w");
    args.dy = lines(dy, args.batch * args.out, "dy");
    args.dx = lines(dx, args.batch * args.in, "dx");
    return args;
  }
  kernels::BatchedComplexGemmArgs<T> backward_weight(const TensorView& x, const TensorView& dy,
                                                     const TensorView& dw, bool accumulate) const {
    auto args = args_;
    args.x = lines(x, args.batch * args.in, "x");
    args.dy = lines(dy, args.batch * args.out, "dy");
    args.dw = weights(dw, "dw");
    args.accumulate_dw = accumulate;
    return args;
  }

 private:
  T* lines(const TensorView& view, std::int64_t count, const char* name) const {
    return checked_complex<T>(view, count * args_.modes, kBatchedComplexGemm, name);
  }
  T* weights(const TensorView& view, const char* name) const {
    return checked<T>(view, args_.in * args_.out * args_.modes * 2, kBatchedComplexGemm, name);
  }

  kernels::BatchedComplexGemmArgs<T> args_;
};

}  // namespace tenon::device_arguments
