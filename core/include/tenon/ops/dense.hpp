// Operator family of a device: matrix products, and the conventions of all families. Shapes are written
// [rows, columns]; "accumulate" means += instead of =. Views are contiguous and row-major. Unless said
// otherwise activations may be f32, f64 or bf16 and all activations of one call share one dtype; parameters,
// statistics and parameter gradients are f32 (f64 with f64 activations); arithmetic is in f32 (f64 for f64).
#pragma once

#include <tenon/tensor.hpp>

#include <memory>

TENON_ABI_BEGIN

/// Pointwise map that a product may apply to its result before storing it.
enum class Epilogue : std::uint8_t {
  kNone = 0,
  kGeluTanh = 1,
  kGeluExact = 2,
  kRelu = 3,
  kSilu = 4,         ///< x / (1 + exp(-x))
  kSquaredRelu = 5,  ///< max(x, 0)^2
};

/// C[m,n] = (accumulate ? C : 0) + alpha * op(A)[m,k] * op(B)[k,n] (+ bias[n]), then epilogue.
/// Inner dimensions as stored: A is [m,k] or, transposed, [k,m]; B is [k,n] or, transposed, [n,k].
struct GemmSpec {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;  ///< independent products, operands packed one after another
  bool transpose_a = false;
  bool transpose_b = false;
  DType a = DType::kF32, b = DType::kF32, c = DType::kF32;
  bool accumulate = false;  ///< C is read in its own dtype, added to in f32 (f64), rounded once
  bool bias = false;
  bool alpha = false;  ///< whether run() is given alpha != 1
  Epilogue epilogue = Epilogue::kNone;
};

/// A prepared product. Made when the graph is built; run() allocates nothing.
class Gemm {
 public:
  virtual ~Gemm();
  /// Scratch that run() needs, out of the caller's memory plan.
  virtual std::size_t scratch_bytes() const = 0;
  virtual void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
                   TensorView scratch) = 0;
};

class Blas {
 public:
  static constexpr const char* kId = "tenon.device.blas/1";
  virtual ~Blas();
  /// Throws Error(kConfig) for a combination of dtypes that this device cannot compute.
  virtual std::unique_ptr<Gemm> gemm(const GemmSpec& spec) = 0;
  /// True if products of this operand dtype run on the processor's own units rather than by conversion.
  virtual bool native(DType operand) const = 0;
};

TENON_ABI_END
