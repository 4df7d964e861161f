// Chooses how a product is computed (family Blas): cuBLASLt on GPUs where it is installed and has the
// product, else the kernels of this tree.
#include "common.hpp"
#include "gemm.hpp"

#include <fmt/format.h>

#include <mutex>

namespace tenon::cuda {
namespace {

bool is_float_or_bf16(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16;
}

class CudaBlas final : public Blas {
 public:
  explicit CudaBlas(Queue& queue) : queue_(queue) {}

  std::unique_ptr<Gemm> gemm(const GemmSpec& spec) override {
    if (spec.m < 0 || spec.n < 0 || spec.k < 0 || spec.batch < 0) {
      fail_config(fmt::format(
          "device {}: gemm: extents must not be negative, found m = {}, n = {}, k = {}, batch = {}",
          kDeviceName, spec.m, spec.n, spec.k, spec.batch));
    }
    std::string reason = "no library is asked on the host";
#ifndef TENON_CUDA_EMULATED
    if (CublasLt* library = opened()) {
      if (auto product = library->gemm(spec, reason)) return product;
    } else {
      reason = reason_;
    }
#endif
    if (kernels_compute(spec)) return make_kernel_gemm(queue_, spec);
    fail_config(
        fmt::format("device {}: gemm of {} and {} into {} cannot be computed ({}); use f32 and bf16 in any "
                    "mixture, or f64 "
                    "throughout",
                    kDeviceName, dtype_name(spec.a), dtype_name(spec.b), dtype_name(spec.c), reason));
  }

  bool native(DType operand) const override {
    if (operand == DType::kF32 || operand == DType::kF64) return true;
#ifndef TENON_CUDA_EMULATED
    return CublasLt::multiplies(operand, queue_.architecture()) && opened() != nullptr;
#else
    return false;
#endif
  }

  std::string description() const {
#ifndef TENON_CUDA_EMULATED
    const std::lock_guard lock(opening_);
    if (library_ != nullptr) return "cuBLASLt " + library_->version();
    if (reason_.empty()) return "cuBLASLt not opened yet";
    return "products of its own (" + reason_ + ")";
#else
    return "products of its own";
#endif
  }

 private:
#ifndef TENON_CUDA_EMULATED
  /// Opened here rather than with the device, since that takes up to a second. Null where it is not
  /// installed.
  CublasLt* opened() const {
    const std::lock_guard lock(opening_);
    if (library_ == nullptr && reason_.empty()) library_ = CublasLt::open(queue_, reason_);
    return library_.get();
  }

  mutable std::mutex opening_;
  mutable std::unique_ptr<CublasLt> library_;
  mutable std::string reason_;  ///< why there is no library
#endif
  Queue& queue_;
};

}  // namespace

void check_gemm(const GemmSpec& spec, const TensorView& a, const TensorView& b, const TensorView& c,
                const TensorView& bias, const TensorView& scratch, std::size_t scratch_bytes) {
  const auto expect = [](const TensorView& view, DType dtype, std::int64_t elements, const char* name) {
    if (view.dtype != dtype || view.elements() != elements ||
        (elements > 0 && (view.data == nullptr || view.space != MemorySpace::kCuda)))
      refuse_view(view, dtype, elements, "gemm", name);
  };
  expect(a, spec.a, spec.batch * spec.m * spec.k, "A");
  expect(b, spec.b, spec.batch * spec.k * spec.n, "B");
  expect(c, spec.c, spec.batch * spec.m * spec.n, "C");
  if (spec.bias) expect(bias, spec.a == DType::kF64 ? DType::kF64 : DType::kF32, spec.n, "bias");
  const auto needed = static_cast<std::int64_t>(scratch_bytes);
  if (needed > 0 &&
      (scratch.data == nullptr || scratch.bytes() < needed || scratch.space != MemorySpace::kCuda))
    refuse_view(scratch, DType::kU8, needed, "gemm", "scratch");
}

bool kernels_compute(const GemmSpec& spec) {
  const bool all_f64 = spec.a == DType::kF64 && spec.b == DType::kF64 && spec.c == DType::kF64;
  return all_f64 || (is_float_or_bf16(spec.a) && is_float_or_bf16(spec.b) && is_float_or_bf16(spec.c));
}

std::string describe_blas(const Blas& blas) {
  return static_cast<const CudaBlas&>(blas).description();
}

std::unique_ptr<Blas> make_blas(Queue& queue) {
  return std::make_unique<CudaBlas>(queue);
}

}  // namespace tenon::cuda
