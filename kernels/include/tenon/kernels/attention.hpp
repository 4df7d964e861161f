// Causal scaled dot-product attention, global or in a local window, forward and backward.
// Query t of a sequence sees keys t - window + 1 .. t (all keys 0 .. t when window is 0), less the keys that
// key_mask hides. A query that sees no key gives zeros and passes no gradient. Hidden keys and values must be
// finite. The vector kernels work block by block and store one log-sum-exp per query instead of a [time,
// time] matrix. Weights below the smallest normal float count as zero there. The set amx multiplies bfloat16
// as such, so weights and the gradients of logits, which are operands of products, are rounded to bfloat16
// (unit roundoff 2^-8) once more; weights are summed before they are rounded, and all sums are in float.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// q, k, v, out and their gradients are [batch, time, heads x d_head]; row_stride counts elements between
/// successive times (3 x heads x d_head reads q, k, v out of one fused projection) and batches follow at time
/// x row_stride.
template <class S>
struct AttentionArgs {
  std::int64_t batch = 0, time = 0, heads = 0, d_head = 0;
  std::int64_t window = 0;  ///< 0: global
  Arith<S> scale = 1;       ///< multiplies the logits: 1 / sqrt(d_head), or 1 as GPT-Neo has it
  const S* q = nullptr;
  const S* k = nullptr;
  const S* v = nullptr;
  std::int64_t qkv_row_stride = 0;
  const std::uint8_t* key_mask = nullptr;  ///< [batch, time], 0 hides the key; null: all are seen
  S* out = nullptr;                        ///< written by forward, read by backward
  std::int64_t out_row_stride = 0;
  Arith<S>* lse = nullptr;  ///< [batch, heads, time]; -infinity for a query that sees no key
  // Backward only. dq, dk, dv are written, not accumulated.
  const S* dout = nullptr;  ///< strides of out
  S* dq = nullptr;
  S* dk = nullptr;
  S* dv = nullptr;
  std::int64_t dqkv_row_stride = 0;
};

/// Queries per unit of forward work.
inline constexpr std::int64_t kAttentionQueryBlock = 64;

/// Units of forward work: (batch, head, block of queries). Any split among threads gives the same bits.
template <class S>
std::int64_t attention_forward_items(const AttentionArgs<S>& args) {
  return args.batch * args.heads * ((args.time + kAttentionQueryBlock - 1) / kAttentionQueryBlock);
}
/// Units of backward work: (batch, head).
template <class S>
std::int64_t attention_backward_items(const AttentionArgs<S>& args) {
  return args.batch * args.heads;
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
