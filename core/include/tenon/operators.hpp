// Operator families of a device (first half: what most layers use). Shapes are written [rows, columns];
// "accumulate" means += instead of =. Views are contiguous and row-major. Unless said otherwise activations
// may be f32, f64 or bf16 and all activations of one call share one dtype; parameters, statistics and
// parameter gradients are f32 (f64 with f64 activations); arithmetic is in f32 (f64 for f64).
#pragma once

#include <tenon/device.hpp>
#include <tenon/random.hpp>

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

/// Normalisation, pointwise maps, dropout, softmax cross-entropy. x, y, dy, dx: [rows, columns].
class NeuralOps {
 public:
  static constexpr const char* kId = "tenon.device.nn/1";
  virtual ~NeuralOps();
  /// y = (x - mean) * rstd * gain + bias; mean, rstd: [rows].
  virtual void layer_norm(TensorView x, TensorView gain, TensorView bias, double eps, TensorView y,
                          TensorView mean, TensorView rstd) = 0;
  /// dgain, dbias: [columns], accumulate_parameters says whether they are added to. scratch:
  /// layer_norm_scratch().
  virtual void layer_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd,
                                   TensorView dy, TensorView dx, bool accumulate, TensorView dgain,
                                   TensorView dbias, bool accumulate_parameters, TensorView scratch) = 0;
  virtual std::size_t layer_norm_scratch(std::int64_t rows, std::int64_t columns, DType activation) const = 0;
  virtual void activation(Epilogue map, TensorView x, TensorView y) = 0;
  virtual void activation_backward(Epilogue map, TensorView x, TensorView dy, TensorView dx,
                                   bool accumulate) = 0;
  /// y = keep ? x / (1 - p) : 0, where keep of element i is a function of (key, step, first + i) alone.
  virtual void dropout(TensorView x, TensorView y, double p, RandomKey key, std::uint64_t step,
                       std::uint64_t first, bool accumulate) = 0;
  /// logits: [rows, columns], targets: i32 [rows], target < 0 = ignored. loss and lse: [rows] (loss 0 where
  /// ignored). The wanted distribution of a row is (1 - smoothing) onehot(target) + smoothing / columns.
  virtual void softmax_cross_entropy(TensorView logits, TensorView targets, double smoothing, TensorView loss,
                                     TensorView lse) = 0;
  /// dlogits = (softmax - wanted) * scale, zero rows where ignored; may be logits' own memory, or bf16.
  virtual void softmax_cross_entropy_backward(TensorView logits, TensorView targets, double smoothing,
                                              TensorView lse, double scale, TensorView dlogits) = 0;
};

/// Causal self-attention. q, k, v, y: [batch, time, heads * head_width].
struct AttentionSpec {
  std::int64_t batch = 0, time = 0, heads = 0, head_width = 0;
  std::int64_t window = 0;   ///< query t sees keys t - window + 1 .. t; 0 = all earlier keys
  double logit_scale = 1.0;  ///< 1 for GPT-Neo, 1 / sqrt(head_width) for most others
  DType dtype = DType::kF32;
};

class AttentionKernel {
 public:
  virtual ~AttentionKernel();
  virtual std::size_t scratch_bytes() const = 0;
  /// lse: f32 (f64) [batch, heads, time], kept for backward. key_mask: u8 [batch, time], 0 = hidden; empty =
  /// none.
  virtual void forward(TensorView q, TensorView k, TensorView v, TensorView key_mask, TensorView y,
                       TensorView lse, TensorView scratch) = 0;
  virtual void backward(TensorView q, TensorView k, TensorView v, TensorView key_mask, TensorView y,
                        TensorView lse, TensorView dy, TensorView dq, TensorView dk, TensorView dv,
                        TensorView scratch) = 0;
};

class Attention {
 public:
  static constexpr const char* kId = "tenon.device.attention/1";
  virtual ~Attention();
  virtual std::unique_ptr<AttentionKernel> prepare(const AttentionSpec& spec) = 0;
};

/// Gather and scatter of rows. ids: i32 [n]; table, gradient: [rows, width] f32 (f64); out: [n, width].
class EmbeddingOps {
 public:
  static constexpr const char* kId = "tenon.device.embedding/1";
  virtual ~EmbeddingOps();
  virtual void gather(TensorView table, TensorView ids, TensorView out, bool accumulate) = 0;
  /// gradient[ids[i]] += dy[i], duplicates in ascending i. scratch: scatter_scratch().
  virtual void scatter_add(TensorView dy, TensorView ids, TensorView gradient, TensorView scratch) = 0;
  virtual std::size_t scatter_scratch(std::int64_t ids, std::int64_t rows) const = 0;
};

/// Maps over flat tensors of equal length; y and x may be the same memory.
class Elementwise {
 public:
  static constexpr const char* kId = "tenon.device.elementwise/1";
  virtual ~Elementwise();
  virtual void fill(TensorView y, double value) = 0;
  virtual void scale(TensorView y, double factor) = 0;
  virtual void axpy(double a, TensorView x, TensorView y) = 0;          ///< y += a * x
  virtual void lerp(TensorView y, TensorView x, double weight) = 0;     ///< y += weight * (x - y)
  virtual void subtract(TensorView a, TensorView b, TensorView y) = 0;  ///< y = a - b
  /// y = a - b, but 0 where b is not a number: a target that does not count. Returns how many do.
  virtual std::int64_t subtract_targets(TensorView a, TensorView b, TensorView y) = 0;
  virtual void add(TensorView a, TensorView b, TensorView y) = 0;  ///< y = a + b
  virtual void convert(TensorView x, TensorView y) = 0;            ///< between dtypes, round to nearest even
  /// y[r, :] (+)= x[r, :] + bias[:]
  virtual void add_bias(TensorView x, TensorView bias, TensorView y) = 0;
};

/// Reductions in a fixed tree that does not depend on the number of threads.
class ReduceOps {
 public:
  static constexpr const char* kId = "tenon.device.reduce/1";
  virtual ~ReduceOps();
  virtual double sum(TensorView x) = 0;
  virtual double sum_of_squares(TensorView x) = 0;
  virtual double absolute_max(TensorView x) = 0;
  /// Index of the first element that is not finite, -1 if all are.
  virtual std::int64_t first_non_finite(TensorView x) = 0;
  /// out[columns] (+)= sum over rows of x[rows, columns]. scratch: sum_rows_scratch().
  virtual void sum_rows(TensorView x, TensorView out, bool accumulate, TensorView scratch) = 0;
  virtual std::size_t sum_rows_scratch(std::int64_t rows, std::int64_t columns, DType dtype) const = 0;
};

TENON_ABI_END
