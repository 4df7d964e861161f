// Operator family of a device for causal self-attention. Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

#include <memory>

TENON_ABI_BEGIN

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

TENON_ABI_END
