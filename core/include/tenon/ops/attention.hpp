// Operator family of a device for causal self-attention. Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <memory>
#include <span>

TENON_ABI_BEGIN

/// Causal self-attention. q, y: [batch, time, heads * head_width]; k, v: [batch, keys, kv_heads *
/// head_width]. Query head h reads key head h / (heads / kv_heads). Query t is at position keys - time + t
/// among the keys.
struct AttentionSpec {
  std::int64_t batch = 0, time = 0, heads = 0, head_width = 0;
  std::int64_t kv_heads = 0;  ///< divides heads; 0 = heads
  std::int64_t keys = 0;      ///< at least time; 0 = time
  std::int64_t window = 0;    ///< position p sees keys p - window + 1 .. p; 0 = all earlier keys
  double logit_scale = 1.0;   ///< 1 for GPT-Neo, 1 / sqrt(head_width) for most others
  DType dtype = DType::kF32;
};

/// Keys that a query does not see, beside those after it and before its window. Each may be empty = none.
struct AttentionMasks {
  TensorView keys;  ///< u8 [batch, keys]; 0 = hidden from every query
  /// i32 [batch, keys]: a query sees the keys of its own document. Numbers along a row must not decrease;
  /// where they do, the result is unspecified.
  TensorView documents;
};

class AttentionKernel {
 public:
  virtual ~AttentionKernel();
  virtual std::size_t scratch_bytes() const = 0;
  /// lse: f32 (f64) [batch, heads, time], kept for backward. A query that sees no key gives zeros and passes
  /// no gradient.
  virtual void forward(TensorView q, TensorView k, TensorView v, const AttentionMasks& masks, TensorView y,
                       TensorView lse, TensorView scratch) = 0;
  /// Writes dq, dk and dv. dk and dv are sums over the query heads of a key head, in a fixed order.
  virtual void backward(TensorView q, TensorView k, TensorView v, const AttentionMasks& masks, TensorView y,
                        TensorView lse, TensorView dy, TensorView dq, TensorView dk, TensorView dv,
                        TensorView scratch) = 0;
};

/// Attention of places that go on with sequences, to keys and values that are kept of the places before. q,
/// y: [batch, time, heads * head_width]; k, v: [batch, time, kv_heads * head_width], of the new places alone.
struct CachedAttentionSpec {
  std::int64_t batch = 0, time = 0, heads = 0, head_width = 0;
  std::int64_t kv_heads = 0;   ///< divides heads; 0 = heads
  std::int64_t positions = 0;  ///< of a sequence at most
  std::int64_t window = 0;     ///< as in AttentionSpec
  double logit_scale = 1.0;
  DType dtype = DType::kF32;
  bool documents = false;  ///< places have document numbers, and see those of their own document
};

/// By row of the batch.
struct CachedRows {
  std::span<const std::int64_t> first;  ///< position of the row's first place in its sequence
  std::span<const std::int64_t> count;  ///< places of the row that count; first + count <= positions
  std::span<const std::int64_t> kept;   ///< the row's sequence in the state, no two alike
};

class CachedAttentionKernel {
 public:
  virtual ~CachedAttentionKernel();
  /// Kept of one sequence: keys and values [positions, kv_heads * head_width] each in `dtype`, and an i32 per
  /// position with documents.
  virtual std::int64_t sequence_bytes() const = 0;
  virtual std::size_t scratch_bytes() const = 0;
  /// Keeps k and v of the places that count in state, u8 [sequences, sequence_bytes()], and gives y there;
  /// y of padding is zero. documents: i32 [batch, time], empty without. The place at position p sees the kept
  /// keys that AttentionKernel::forward() would show it over the whole sequence, and y is what that gives: on
  /// reference kernels to the bit.
  virtual void forward(TensorView q, TensorView k, TensorView v, TensorView documents, const CachedRows& rows,
                       TensorView state, TensorView y, TensorView scratch) = 0;
};

class Attention {
 public:
  static constexpr const char* kId = "tenon.device.attention/1";
  virtual ~Attention();
  virtual std::unique_ptr<AttentionKernel> prepare(const AttentionSpec& spec) = 0;
  /// Throws Error(kConfig) on devices that have none.
  virtual std::unique_ptr<CachedAttentionKernel> prepare_cached(const CachedAttentionSpec& spec);
};

TENON_ABI_END
