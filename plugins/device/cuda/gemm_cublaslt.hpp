// Products by NVIDIA's cuBLASLt, which is opened at run time. Only in the build for GPUs.
#pragma once

#include "gemm.hpp"

#include <memory>
#include <string>

namespace tenon::cuda {

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
