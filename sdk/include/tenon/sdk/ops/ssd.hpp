// Operator families of a device for Mamba-2 layers (Dao, Gu 2024): the causal convolution over time, the
// state space model with one decay per head, and the norm of gated values. Optional: a device offers them to
// the layers that ask for them. Conventions are those of <tenon/ops/dense.hpp>.
//
// Values of several kinds stand in one row of a projection, so operators take runs of columns of wider rows.
// Statistics, states and the parameters of heads are f32, f64 for f64 values, written A below.
#pragma once

#include <tenon/ops/attention.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <memory>
#include <vector>

TENON_ABI_BEGIN

/// Columns [first, first + width) of a row.
struct ColumnRun {
  std::int64_t first = 0, width = 0;
};
/// Several of them are read as one row, joined in this order. None overlap.
using ColumnRuns = std::vector<ColumnRun>;

constexpr std::int64_t columns_of_runs(const ColumnRuns& runs) {
  std::int64_t sum = 0;
  for (const ColumnRun& run : runs) sum += run.width;
  return sum;
}

/// y[t, c] = map(bias[c] + sum over j < width of weight[c, width - 1 - j] x[t - j, c]), map = SiLU, where
/// position t - j exists and is of t's document.
struct CausalConvSpec {
  std::int64_t batch = 0, time = 0, width = 0;
  std::int64_t columns = 0;  ///< of a row of x
  ColumnRuns channels;       ///< of them, those of the convolution
  DType dtype = DType::kF32;
  DType parameter = DType::kF32;  ///< of weight and bias
};

class CausalConvKernel {
 public:
  virtual ~CausalConvKernel();
  virtual std::size_t scratch_bytes() const = 0;
  /// x: [batch, time, columns]; documents: i32 [batch, time], empty = one; weight: [channels, width]; bias:
  /// [channels]; y: [batch, time, channels].
  virtual void forward(TensorView x, TensorView documents, TensorView weight, TensorView bias, TensorView y,
                       TensorView scratch) = 0;
  /// Writes the runs of dx [batch, time, columns] alone. dweight and dbias (+)=.
  virtual void backward(TensorView x, TensorView documents, TensorView weight, TensorView bias, TensorView dy,
                        TensorView dx, TensorView dweight, TensorView dbias, bool accumulate,
                        TensorView scratch) = 0;
  /// Kept of one sequence: the last width - 1 columns in `dtype`, and their documents.
  virtual std::int64_t sequence_bytes() const = 0;
  /// forward() of places that go on with sequences. state: u8 [sequences, sequence_bytes()]. The values are
  /// those of forward() over the whole sequence, to the bit. y of padding is zero.
  virtual void step(TensorView x, TensorView documents, TensorView weight, TensorView bias,
                    const CachedRows& rows, TensorView state, TensorView y) = 0;
};

class CausalConvs {
 public:
  static constexpr const char* kId = "tenon.device.causal_conv/1";
  virtual ~CausalConvs();
  virtual std::unique_ptr<CausalConvKernel> prepare(const CausalConvSpec& spec) = 0;
};

/// For head h of group g = h / (heads / groups), at position t:
///   delta = clamp(softplus(steps[t, h] + dt_bias[h]), dt_min, dt_max),  a = exp(-delta exp(a_log[h]))
///   H_t = a H_(t-1) + B[t, g] (delta x[t, h])^T,  y[t, h] = H_t^T C[t, g] + d[h] x[t, h]
/// H: [state, head_width]. A position of another document than the one before it begins with H = 0. xbc
/// holds, group after group, x of the group's heads [heads / groups * head_width], B [state] and C [state].
struct SsdSpec {
  std::int64_t batch = 0, time = 0, heads = 0, head_width = 0, groups = 1, state = 0;
  std::int64_t chunk = 256;       ///< positions that are computed together; any number
  std::int64_t columns = 0;       ///< of a row of `projected`
  ColumnRuns steps;               ///< of them, one column per head
  double dt_min = 0, dt_max = 0;  ///< 0 = no bound
  DType dtype = DType::kF32;

  std::int64_t xbc_columns() const { return heads * head_width + 2 * groups * state; }
  std::int64_t chunks() const { return chunk > 0 ? (time + chunk - 1) / chunk : 0; }
};

/// xbc: [batch, time, xbc_columns()]; projected: [batch, time, columns]; a_log, dt_bias, d: A [heads];
/// documents: i32 [batch, time], empty = one; initial: A [batch, heads, state, head_width], H before the
/// first position, empty = zero.
struct SsdInputs {
  TensorView xbc, projected, a_log, dt_bias, d, documents, initial;
};

/// Gradients of SsdInputs; each but xbc and projected may be empty. Written: xbc, the steps of projected,
/// initial. The parameters' are (+)=.
struct SsdGradients {
  TensorView xbc, projected, a_log, dt_bias, d, initial;
  bool accumulate = false;  ///< of the parameters' gradients
};

class SsdKernel {
 public:
  virtual ~SsdKernel();
  virtual std::size_t scratch_bytes() const = 0;
  /// y: [batch, time, heads * head_width]. states: A [batch, chunks(), heads, state, head_width], H before
  /// each chunk, for backward; last: A [batch, heads, state, head_width], H after the last position. Both may
  /// be empty.
  virtual void forward(const SsdInputs& inputs, TensorView y, TensorView states, TensorView last,
                       TensorView scratch) = 0;
  /// states: as forward() left them. dlast: the gradient of `last`, empty = zero.
  virtual void backward(const SsdInputs& inputs, TensorView states, TensorView dy, TensorView dlast,
                        const SsdGradients& gradients, TensorView scratch) = 0;
  /// Kept of one sequence: H of every head, and the last document.
  virtual std::int64_t sequence_bytes() const = 0;
  /// forward() of places that go on with sequences, without `initial`; a row whose first place is 0 begins
  /// with H = 0. state: u8 [sequences, sequence_bytes()]. On reference kernels the values are those of
  /// forward() over the whole sequence, to the bit. y of padding is zero.
  virtual void step(const SsdInputs& inputs, const CachedRows& rows, TensorView state, TensorView y,
                    TensorView scratch) = 0;
};

class Ssd {
 public:
  static constexpr const char* kId = "tenon.device.ssd/1";
  virtual ~Ssd();
  virtual std::unique_ptr<SsdKernel> prepare(const SsdSpec& spec) = 0;
};

/// out[r, c] = weight[c] v / sqrt(mean of v^2 over c's group + eps), v = y[r, c] silu(z[r, c]); groups are
/// neighbouring columns.
struct GatedNormSpec {
  std::int64_t rows = 0, groups = 1, group_width = 0;
  std::int64_t columns = 0;  ///< of a row of `projected`
  ColumnRuns gates;          ///< of them, z
  double eps = 1e-5;
  DType dtype = DType::kF32;
  DType parameter = DType::kF32;  ///< of weight
};

class GatedNormKernel {
 public:
  virtual ~GatedNormKernel();
  virtual std::size_t scratch_bytes() const = 0;
  /// y, out: [rows, groups * group_width]; projected: [rows, columns]; weight: [groups * group_width]. out
  /// may be y.
  virtual void forward(TensorView y, TensorView projected, TensorView weight, TensorView out) = 0;
  /// Writes dy, which may be dout, and the gates of dprojected. dweight (+)=.
  virtual void backward(TensorView y, TensorView projected, TensorView weight, TensorView dout, TensorView dy,
                        TensorView dprojected, TensorView dweight, bool accumulate, TensorView scratch) = 0;
};

class GatedNorms {
 public:
  static constexpr const char* kId = "tenon.device.gated_norm/1";
  virtual ~GatedNorms();
  virtual std::unique_ptr<GatedNormKernel> prepare(const GatedNormSpec& spec) = 0;
};

TENON_ABI_END
