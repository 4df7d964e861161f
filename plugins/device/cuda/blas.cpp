// Chooses how a product is computed (family Blas): cuBLASLt on GPUs where it is installed and has the
// product, else the kernels of this tree.
#include "common.hpp"
#include "gemm.hpp"

#include <mutex>

namespace tenon::cuda {
namespace {

class CudaBlas final : public Blas {
 public:
  explicit CudaBlas(Queue& queue) : queue_(queue) {}

  std::unique_ptr<Gemm> gemm(const GemmSpec& spec) override {
    device_arguments::check_gemm_extents(spec);
    std::string reason = "no library is asked on the host";
#ifndef TENON_CUDA_EMULATED
    if (CublasLt* library = opened()) {
      if (auto product = library->gemm(spec, reason)) return product;
    } else {
      reason = reason_;
    }
#endif
    if (device_arguments::kernels_compute(spec)) return make_kernel_gemm(queue_, spec);
    device_arguments::refuse_gemm(spec, reason);
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

std::string describe_blas(const Blas& blas) {
  return static_cast<const CudaBlas&>(blas).description();
}

std::unique_ptr<Blas> make_blas(Queue& queue) {
  return std::make_unique<CudaBlas>(queue);
}

}  // namespace tenon::cuda
