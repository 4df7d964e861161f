// The ways in which this device computes a product, from which blas.cpp chooses: the kernels of this tree
// and, on GPUs, cuBLASLt. All check their views and allocate nothing in run().
#pragma once

#include "device_common/gemms.hpp"
#include "queue.hpp"

#include <tenon/ops/dense.hpp>

#include <functional>
#include <memory>
#include <string>

namespace tenon::cuda {

/// Kernels of this tree, where device_arguments::kernels_compute() is true. Each element is one chain over k,
/// whatever the tile.
std::unique_ptr<Gemm> make_kernel_gemm(Queue& queue, const GemmSpec& spec);

/// Returns null where it has no such product.
using MakeGemm = std::function<std::unique_ptr<Gemm>(const GemmSpec&)>;

/// A product into bf16 through f32 sums in scratch, which inner products from `make` write: one rounding for
/// sums, old C, bias and map together. Null where `make` has no inner product.
std::unique_ptr<Gemm> make_wide_gemm(Queue& queue, const GemmSpec& spec, const MakeGemm& make);

/// The tail of `spec` (old C if it accumulates, bias, map) on alpha times the sums, which are f32 (f64) at
/// `scaled` in C's layout and may be C itself. C is f32, bf16 or f64.
void finish_gemm(Queue& queue, const GemmSpec& spec, const void* scaled, const TensorView& c,
                 const TensorView& bias);

// Products by NVIDIA's cuBLASLt, which is opened at run time. Only in the build for GPUs.

/// One per device. Row-major matrices are passed as what they are to a column-major library: their
/// transposes, with the operands exchanged.
class CublasLt {
 public:
  /// Null, and why, where the library is absent or does not start.
  static std::unique_ptr<CublasLt> open(Queue& queue, std::string& reason);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// Whether operands of this dtype are multiplied on a device of this architecture.
  static bool multiplies(DType operand, int architecture);

  /// Null, and why, where the library has no such product, or where our own kernels are as good. The library
  /// is asked once for equal specifications.
  std::unique_ptr<Gemm> gemm(const GemmSpec& spec, std::string& reason);

  /// "13.1.0".
  std::string version() const;

  struct State;

 private:
  explicit CublasLt(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tenon::cuda
