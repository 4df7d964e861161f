// Causal scaled dot-product attention, global or in a local window, forward and backward.
// Query t of a sequence is at position p = keys - time + t. It sees keys p - window + 1 .. p (all keys 0 .. p
// when window is 0) of its own document, less the keys that key_mask hides. A query that sees no key gives
// zeros and passes no gradient. Hidden keys and values must be finite. Query head h reads key head h /
// (heads / kv_heads); gradients of a key head are summed over its query heads in ascending order. The vector
// kernels work block by block, skip blocks without a visible pair, and store one log-sum-exp per query
// instead of a [time, keys] matrix. Weights below the smallest normal float count as zero there. The set amx
// multiplies bfloat16 as such, so weights and the gradients of logits, which are operands of products, are
// rounded to bfloat16 (unit roundoff 2^-8) once more; weights are summed before they are rounded, and all
// sums are in float.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// q, out and their gradients are [batch, time, heads x d_head], k, v and theirs [batch, keys, kv_heads x
/// d_head]; a row stride counts elements between successive times (3 x heads x d_head reads q, k, v out of
/// one fused projection) and batches follow at time (keys) x row stride.
template <class S>
struct AttentionArgs {
  std::int64_t batch = 0, time = 0, heads = 0, d_head = 0;
  std::int64_t kv_heads = 0;  ///< divides heads
  std::int64_t keys = 0;      ///< at least time
  std::int64_t window = 0;    ///< 0: global
  Arith<S> scale = 1;         ///< multiplies the logits: 1 / sqrt(d_head), or 1 as GPT-Neo has it
  const S* q = nullptr;
  const S* k = nullptr;
  const S* v = nullptr;
  std::int64_t q_row_stride = 0, kv_row_stride = 0;
  const std::uint8_t* key_mask = nullptr;  ///< [batch, keys], 0 hides the key; null: all are seen
  /// [batch, keys], not descending along a row; null: a row is one document. Where numbers descend, memory
  /// outside the tensors is not touched.
  const std::int32_t* documents = nullptr;
  S* out = nullptr;  ///< written by forward, read by backward
  std::int64_t out_row_stride = 0;
  Arith<S>* lse = nullptr;  ///< [batch, heads, time]; -infinity for a query that sees no key
  // Backward only. dq, dk, dv are written, not accumulated.
  const S* dout = nullptr;  ///< strides of out
  S* dq = nullptr;
  S* dk = nullptr;
  S* dv = nullptr;
  std::int64_t dq_row_stride = 0, dkv_row_stride = 0;
};

/// Queries per unit of forward work.
inline constexpr std::int64_t kAttentionQueryBlock = 64;

/// Units of forward work: (batch, head, block of queries). Any split among threads gives the same bits.
template <class S>
std::int64_t attention_forward_items(const AttentionArgs<S>& args) {
  return args.batch * args.heads * ((args.time + kAttentionQueryBlock - 1) / kAttentionQueryBlock);
}
/// Units of backward work: (batch, key head), each with all query heads that read it.
template <class S>
std::int64_t attention_backward_items(const AttentionArgs<S>& args) {
  return args.batch * args.kv_heads;
}

template <class S>
struct AttentionOps {
  /// Arith<S> elements of scratch that each concurrent caller of forward or backward provides.
  std::int64_t (*workspace)(const AttentionArgs<S>& args);
  void (*forward)(const AttentionArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                  Arith<S>* workspace);
  void (*backward)(const AttentionArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                   Arith<S>* workspace);
};

}  // namespace tenon::kernels
