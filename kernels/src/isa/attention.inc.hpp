// Causal attention block by block (contract: attention.hpp; scheme: Dao, "FlashAttention-2", 2023). Blocks
// are 64 queries by 64 keys in every kernel set and start at time 0, so the order of sums depends on shapes
// and documents alone. Blocks that lie outside all windows and documents are skipped. Scores are masked
// before exp, never after.
#pragma once

#include <tenon/kernels/attention.hpp>

#include "isa/gemm.inc.hpp"
#include "isa/softmax.inc.hpp"

namespace tenon::kernels {
namespace {

constexpr std::int64_t kQueries = kAttentionQueryBlock;
constexpr std::int64_t kKeys = 64;

TENON_INLINE std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
TENON_INLINE std::int64_t most(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

/// sums = A B, or sums + A B, at `c` with `ld` columns between rows. Rows of B that are side by side are read
/// in place.
TENON_INLINE void block_product(std::int64_t m, std::int64_t n, std::int64_t k, Strided<float> a,
                                Strided<float> b, float* c, std::int64_t ld, bool accumulate) {
  strided_product(m, n, k, a, b, c, ld, 1.0f, accumulate ? 1.0f : 0.0f);
}

/// The first key of the document that the key at `position` is in.
TENON_INLINE std::int64_t document_begin(const std::int32_t* documents, std::int64_t position) {
  std::int64_t low = 0, high = position;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (documents[middle] < documents[position])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// The place after the last key of that document.
TENON_INLINE std::int64_t document_end(const std::int32_t* documents, std::int64_t position,
                                       std::int64_t keys) {
  std::int64_t low = position + 1, high = keys;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (documents[middle] > documents[position])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Place of query 0 among the keys.
template <class S>
TENON_INLINE std::int64_t first_position(const AttentionArgs<S>& args) {
  return args.keys - args.time;
}

/// firsts[i] = first key that query q0 + i sees, before the key mask; ascending. Queries beyond `queries`
/// repeat the last.
template <class S>
TENON_INLINE void first_keys(const AttentionArgs<S>& args, const std::int32_t* documents, std::int64_t q0,
                             std::int64_t queries, std::int64_t* firsts) {
  const std::int64_t position = first_position(args) + q0;
  std::int64_t begin = documents == nullptr ? 0 : document_begin(documents, position);
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t p = position + i;
    if (documents != nullptr && i > 0 && documents[p] != documents[p - 1]) begin = p;
    firsts[i] = args.window > 0 ? most(begin, p - args.window + 1) : begin;
  }
  for (std::int64_t i = queries; i < kQueries; ++i) firsts[i] = firsts[queries - 1];
}

/// The queries [begin, end) that see some key of [k0, k0 + keys), before the key mask.
struct QueryRange {
  std::int64_t begin, end;
};
template <class S>
TENON_INLINE QueryRange queries_of(const AttentionArgs<S>& args, const std::int32_t* documents,
                                   std::int64_t k0, std::int64_t keys) {
  const std::int64_t last = k0 + keys - 1;
  std::int64_t end = args.window > 0 ? least(args.keys, last + args.window) : args.keys;
  if (documents != nullptr) end = least(end, document_end(documents, last, args.keys));
  return {most(0, k0 - first_position(args)), end - first_position(args)};
}

/// Scales the scores of the query at `position`, which sees no key before `first_seen`, against keys [k0, k0
/// + keys) and sets those of hidden keys to -infinity.
template <class S>
TENON_INLINE void mask_row(const AttentionArgs<S>& args, const std::uint8_t* key_mask,
                           std::int64_t first_seen, std::int64_t position, std::int64_t k0, std::int64_t keys,
                           float* row) {
  const F factor = splat(args.scale), hidden = splat(kMinusInfinity);
  const std::int64_t first = first_seen - k0, last = position - k0;
  for_lanes(0, keys, [&](std::int64_t j, std::int64_t count) TENON_BODY {
    F s = load_group(row + j, count) * factor;
    if (first > j || last < j + count - 1) {
      const I index = lanes_from(j);
      const I before = index < splat_int(static_cast<std::int32_t>(least(most(first, 0), kKeys)));
      const I behind = splat_int(static_cast<std::int32_t>(last < -1 ? -1 : least(last, kKeys))) < index;
      s = select(before | behind, hidden, s);
    }
    store_group(row + j, s, count);
  });
  if (key_mask == nullptr) return;
  for (std::int64_t j = 0; j < keys; ++j)
    if (key_mask[k0 + j] == 0) row[j] = kMinusInfinity;
}

template <class S>
struct AttentionHead {
  Strided<S> q, k, v;  ///< [time, d_head], [keys, d_head]
  const std::uint8_t* key_mask;
  const std::int32_t* documents;
  std::int64_t key_head;  ///< over all batches
  std::int64_t out_offset, lse_offset, dq_offset, dkv_offset;
  /// In kept blocks (cached_attention.hpp): k and v begin with the sequence, a row has the elements of all
  /// key heads at a position, and those of the key heads before this one count key_offset. 0: in rows.
  std::int64_t positions = 0, key_offset = 0;

  /// The block of keys from k0 on, as [d_head, keys].
  TENON_INLINE Strided<S> keys_of(std::int64_t k0) const {
    if (positions == 0) return {k.at(k0, 0), k.col, k.row};
    const std::int64_t width = least(kKeys, positions - k0);
    return {k.data + k0 * k.row + key_offset * width, width, 1};
  }
  /// Its values, as [keys, d_head].
  TENON_INLINE Strided<S> values_of(std::int64_t k0, std::int64_t d_head) const {
    if (positions == 0) return {v.at(k0, 0), v.row, v.col};
    const std::int64_t width = least(kKeys, positions - k0);
    return {v.data + k0 * v.row + key_offset * width, d_head, 1};
  }
};

template <class S>
TENON_INLINE AttentionHead<S> head_of(const AttentionArgs<S>& args, std::int64_t pair) {
  const std::int64_t b = pair / args.heads, h = pair % args.heads;
  const std::int64_t key_head = h / (args.heads / args.kv_heads);
  const std::int64_t of_keys = b * args.keys * args.kv_row_stride + key_head * args.d_head;
  return {{args.q + b * args.time * args.q_row_stride + h * args.d_head, args.q_row_stride, 1},
          {args.k + of_keys, args.kv_row_stride, 1},
          {args.v + of_keys, args.kv_row_stride, 1},
          args.key_mask == nullptr ? nullptr : args.key_mask + b * args.keys,
          args.documents == nullptr ? nullptr : args.documents + b * args.keys,
          b * args.kv_heads + key_head,
          b * args.time * args.out_row_stride + h * args.d_head,
          pair * args.time,
          b * args.time * args.dq_row_stride + h * args.d_head,
          b * args.keys * args.dkv_row_stride + key_head * args.d_head};
}

/// Keys whose gradients backward holds at a time: a block, or all where several query heads add to them.
template <class S>
TENON_INLINE std::int64_t keys_held(const AttentionArgs<S>& args) {
  return args.heads == args.kv_heads ? kKeys : args.keys;
}

template <class S>
TENON_INLINE Strided<S> rows_from(Strided<S> a, std::int64_t row) {
  return {a.at(row, 0), a.row, a.col};
}
template <class S>
TENON_INLINE Strided<S> transposed(Strided<S> a) {
  return {a.data, a.col, a.row};
}

/// Blocks of queries that take a block of keys one after another, so that it is prepared once for all.
constexpr std::int64_t kBlocksOfCall = 4;

template <class S>
std::int64_t attention_forward_workspace(const AttentionArgs<S>& args) {
  const std::int64_t queries = kBlocksOfCall * kQueries;
  return kQueries * kKeys + 2 * (queries + kKeys) * args.d_head;
}
/// Layouts: attention_forward_blocks, attention_backward_head.
template <class S>
std::int64_t attention_workspace(const AttentionArgs<S>& args) {
  const std::int64_t scores = 2 * kQueries * kKeys,
                     gradients = (args.time + 2 * keys_held(args)) * args.d_head;
  const std::int64_t operands = (2 * kQueries + 4 * kKeys) * args.d_head;
  return most(attention_forward_workspace(args), scores + gradients + args.time + operands);
}

/// a[rows, cols] in float with its rows side by side: in place where they are so, else at `to`.
template <class S>
TENON_INLINE Strided<float> side_by_side(Strided<S> a, std::int64_t rows, std::int64_t cols, float* to) {
  if constexpr (sizeof(S) == sizeof(float))
    if (a.row == cols && a.col == 1) return a;
  for (std::int64_t i = 0; i < rows; ++i)
    for_lanes(0, cols, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      store_group(to + i * cols + j, load_group(a.at(i, j), n), n);
    });
  return {to, cols, 1};
}
/// a[rows, cols] transposed, at `to`.
TENON_INLINE Strided<float> transposed_copy(Strided<float> a, std::int64_t rows, std::int64_t cols,
                                            float* to) {
  transpose(a.data, a.row, rows, cols, to, kKeys);
  return {to, kKeys, 1};
}

/// Makes weights of the scores of one query against a block of keys, and scales what the query has so far to
/// the largest score that it now has.
TENON_INLINE void weigh_row(float* row, std::int64_t keys, std::int64_t d, float& highest, float& total,
                            float* sums) {
  const float here = row_max(row, keys);
  const float shift = here > highest ? here : highest;
  const float base = shift == kMinusInfinity ? 0.0f : shift;
  // Before the first visible key the sums are zero (or NaN) whatever they are multiplied by.
  const float kept = highest == kMinusInfinity ? 1.0f : exp_one(highest - base);
  const float sum = row_exp_sum(row, keys, 1.0f, base, [&](std::int64_t j, std::int64_t n, F e) TENON_BODY {
    store_group(row + j, e, n);
  });
  total = total * kept + sum;
  highest = shift;
  if (kept != 1.0f)
    for_lanes(0, d, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      store_group(sums + j, load_group(sums + j, n) * splat(kept), n);
    });
}

/// Writes the output of a query.
template <class S>
TENON_INLINE void put_output(const float* sums, float total, std::int64_t d, S* out) {
  const F inverse = splat(total == 0.0f ? 0.0f : 1.0f / total);
  for_lanes(0, d, [&](std::int64_t j, std::int64_t n) TENON_BODY {
    store_group(out + j, load_group(sums + j, n) * inverse, n);
  });
}

/// `blocks` blocks of queries from q0 on, at most kBlocksOfCall.
template <class S>
void attention_forward_blocks(const AttentionArgs<S>& args, const AttentionHead<S>& head, std::int64_t q0,
                              std::int64_t blocks, float* workspace) {
  constexpr std::int64_t kMost = kBlocksOfCall * kQueries;
  const std::int64_t all = least(blocks * kQueries, args.time - q0), d = args.d_head;
  float* scores = workspace;                // of one block of queries, [queries, keys]
  float* sums = scores + kQueries * kKeys;  // [all, d]
  float* q_rows = sums + kMost * d;         // [all, d]
  float* k_columns = q_rows + kMost * d;    // [d, keys]
  float* rows = k_columns + kKeys * d;      // [keys, d]: of k, then of v
  float highest[kMost], total[kMost];
  std::int64_t firsts[kMost] = {};
  for (std::int64_t i = 0; i < all; ++i) {
    highest[i] = kMinusInfinity;
    total[i] = 0.0f;
  }
  __builtin_memset(sums, 0, (all * d) * sizeof(float));
  for (std::int64_t i = 0; i < all; i += kQueries)
    first_keys(args, head.documents, q0 + i, least(kQueries, all - i), firsts + i);
  const std::int64_t position = first_position(args) + q0;
  const Strided<float> q = side_by_side(rows_from(head.q, q0), all, d, q_rows);

  for (std::int64_t k0 = firsts[0] / kKeys * kKeys; k0 < position + all; k0 += kKeys) {
    const std::int64_t keys = least(kKeys, args.keys - k0);
    const Strided<S> k = head.keys_of(k0);
    const Strided<float> k_transposed =
        k.col == 1 ? side_by_side(k, d, keys, k_columns)
                   : transposed_copy(side_by_side(transposed(k), keys, d, rows), keys, d, k_columns);
    const Strided<float> v = side_by_side(head.values_of(k0, d), keys, d, rows);
    for (std::int64_t first = 0; first < all; first += kQueries) {
      const std::int64_t queries = least(kQueries, all - first);
      if (k0 < firsts[first] / kKeys * kKeys || k0 >= position + first + queries) continue;
      block_product(queries, keys, d, rows_from(q, first), k_transposed, scores, kKeys, false);
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t at = first + i;
        float* row = scores + i * kKeys;
        if (head.positions == 0 && first + queries == all) {
          prefetch_lines<2>(head.k.at(k0 + kKeys + i, 0), d);
          prefetch_lines<2>(head.v.at(k0 + kKeys + i, 0), d);
        }
        mask_row(args, head.key_mask, firsts[at], position + at, k0, keys, row);
        weigh_row(row, keys, d, highest[at], total[at], sums + at * d);
      }
      block_product(queries, d, keys, Strided<float>{scores, kKeys, 1}, v, sums + first * d, d, true);
    }
  }

  for (std::int64_t i = 0; i < all; ++i) {
    put_output(sums + i * d, total[i], d, args.out + head.out_offset + (q0 + i) * args.out_row_stride);
    if (args.lse != nullptr)
      args.lse[head.lse_offset + q0 + i] = total[i] == 0.0f ? kMinusInfinity : highest[i] + log_one(total[i]);
  }
}

/// Calls some(head, q0, blocks of one call) so that the units of work [begin, end) are covered, of which a
/// head has `blocks`.
template <class Some>
TENON_INLINE void for_blocks_of_heads(std::int64_t begin, std::int64_t end, std::int64_t blocks, Some some) {
  for (std::int64_t item = begin; item < end;) {
    const std::int64_t first = item % blocks;
    const std::int64_t count = least(kBlocksOfCall, least(end - item, blocks - first));
    some(item / blocks, first * kQueries, count);
    item += count;
  }
}

template <class S>
void attention_forward(const AttentionArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                       float* workspace) {
  for_blocks_of_heads(item_begin, item_end, (args.time + kQueries - 1) / kQueries,
                      [&](std::int64_t pair, std::int64_t q0, std::int64_t blocks) {
                        attention_forward_blocks(args, head_of(args, pair), q0, blocks, workspace);
                      });
}

/// Write `rows` rows of a float buffer [rows, d] into a gradient.
template <class S>
TENON_INLINE void put_rows(const float* from, std::int64_t rows, std::int64_t d, S* to, std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i)
    for_lanes(0, d, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      store_group(to + i * stride + j, load_group(from + i * d + j, n), n);
    });
}

/// One query head of those that read a key head: the first begins the sums of dk and dv, the last writes
/// them.
template <class S>
void attention_backward_head(const AttentionArgs<S>& args, const AttentionHead<S>& head, bool begins,
                             bool writes, float* workspace) {
  const std::int64_t time = args.time, d = args.d_head, held = keys_held(args);
  float* p = workspace;               // probabilities of one block, [queries, keys]
  float* ds = p + kQueries * kKeys;   // gradients of its logits
  float* dq = ds + kQueries * kKeys;  // [time, d]
  float* dk_held = dq + time * d;     // [held, d], as dv
  float* dv_held = dk_held + held * d;
  float* delta = dv_held + held * d;  // per query: sum of dout out = sum of P dP
  float* q_rows = delta + time;       // operands, rows side by side
  float* dout_rows = q_rows + kQueries * d;
  float* k_rows = dout_rows + kQueries * d;
  float* v_rows = k_rows + kKeys * d;
  float* k_columns = v_rows + kKeys * d;  // [d, keys], as of v
  float* v_columns = k_columns + kKeys * d;
  const Strided<S> dout{args.dout + head.out_offset, args.out_row_stride, 1};

  __builtin_memset(dq, 0, (time * d) * sizeof(float));
  for (std::int64_t t = 0; t < time; ++t) {
    const S* out = args.out + head.out_offset + t * args.out_row_stride;
    F lanes = splat(0.0f);
    for_lanes(0, d, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      lanes = mul_add(load_group(out + j, n), load_group(dout.at(t, j), n), lanes);
    });
    delta[t] = sum_lanes(lanes);
  }

  const std::int64_t shift = first_position(args);
  const bool grouped = args.heads != args.kv_heads;
  for (std::int64_t k0 = 0; k0 < args.keys; k0 += kKeys) {
    const std::int64_t keys = least(kKeys, args.keys - k0);
    const Strided<float> k = side_by_side(rows_from(head.k, k0), keys, d, k_rows),
                         v = side_by_side(rows_from(head.v, k0), keys, d, v_rows);
    const Strided<float> k_transposed = transposed_copy(k, keys, d, k_columns),
                         v_transposed = transposed_copy(v, keys, d, v_columns);
    float *dk = dk_held + (grouped ? k0 * d : 0), *dv = dv_held + (grouped ? k0 * d : 0);
    if (begins) {
      __builtin_memset(dk, 0, (keys * d) * sizeof(float));
      __builtin_memset(dv, 0, (keys * d) * sizeof(float));
    }
    const QueryRange seen = queries_of(args, head.documents, k0, keys);
    for (std::int64_t q0 = seen.begin / kQueries * kQueries; q0 < seen.end; q0 += kQueries) {
      const std::int64_t queries = least(kQueries, time - q0);
      std::int64_t firsts[kQueries];
      first_keys(args, head.documents, q0, queries, firsts);
      const Strided<float> q = side_by_side(rows_from(head.q, q0), queries, d, q_rows);
      const Strided<float> g = side_by_side(rows_from(dout, q0), queries, d, dout_rows);
      block_product(queries, keys, d, q, k_transposed, p, kKeys, false);
      block_product(queries, keys, d, g, v_transposed, ds, kKeys, false);
      for (std::int64_t i = 0; i < queries; ++i) {
        float* row = p + i * kKeys;
        float* slope = ds + i * kKeys;
        prefetch_lines<2>(head.q.at(q0 + kQueries + i, 0), d);
        prefetch_lines<2>(dout.at(q0 + kQueries + i, 0), d);
        mask_row(args, head.key_mask, firsts[i], shift + q0 + i, k0, keys, row);
        const float lse = args.lse[head.lse_offset + q0 + i];
        const F base = splat(lse == kMinusInfinity ? 0.0f : lse), shift = splat(delta[q0 + i]),
                factor = splat(args.scale);
        for_lanes(0, keys, [&](std::int64_t j, std::int64_t n) TENON_BODY {
          const F e = weight_exp(load_group(row + j, n) - base);
          store_group(row + j, e, n);
          store_group(slope + j, e * (load_group(slope + j, n) - shift) * factor, n);
        });
      }
      block_product(keys, d, queries, transposed(Strided<float>{p, kKeys, 1}), g, dv, d, true);
      block_product(keys, d, queries, transposed(Strided<float>{ds, kKeys, 1}), q, dk, d, true);
      block_product(queries, d, keys, Strided<float>{ds, kKeys, 1}, k, dq + q0 * d, d, true);
    }
    if (!writes) continue;
    put_rows(dk, keys, d, args.dk + head.dkv_offset + k0 * args.dkv_row_stride, args.dkv_row_stride);
    put_rows(dv, keys, d, args.dv + head.dkv_offset + k0 * args.dkv_row_stride, args.dkv_row_stride);
  }
  put_rows(dq, time, d, args.dq + head.dq_offset, args.dq_row_stride);
}

template <class S>
void attention_backward(const AttentionArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                        float* workspace) {
  const std::int64_t group = args.heads / args.kv_heads;
  for (std::int64_t item = item_begin; item < item_end; ++item)
    for (std::int64_t member = 0; member < group; ++member)
      attention_backward_head(args, head_of(args, item * group + member), member == 0, member + 1 == group,
                              workspace);
}

}  // namespace
}  // namespace tenon::kernels
