// Attention to kept keys (contract and layout: cached_attention.hpp). Several places of a sequence take the
// blocks of attention.inc.hpp; a single one, as in generation, has its scores and sums in registers, each in
// the order of those blocks, so that both give the same bits.
#pragma once

#include <tenon/kernels/cached_attention.hpp>

#include "isa/attention.inc.hpp"

namespace tenon::kernels {
namespace {

static_assert(kKeptBlock == kKeys);

// As many query heads and columns of values at a time as have their sums in registers.
constexpr int kQueryHeads = TENON_SIMD_BYTES == 64 ? 2 : 1;
constexpr int kValueColumns = (TENON_SIMD_BYTES == 64 ? 4 : 2) * kLanes;

/// Query heads of one place whose scores and sums have room at a time.
constexpr std::int64_t kHeadsOfCall = 64;

/// Places of a pass as the last queries of their sequence.
template <class S>
TENON_INLINE AttentionArgs<S> as_queries(const CachedAttentionArgs<S>& args) {
  AttentionArgs<S> all;
  all.batch = 1, all.time = args.count, all.heads = args.heads, all.d_head = args.d_head;
  all.kv_heads = args.kv_heads, all.keys = args.first + args.count;
  all.window = args.window, all.scale = args.scale;
  all.out = args.out;
  all.out_row_stride = args.heads * args.d_head;
  return all;
}

template <class S>
std::int64_t cached_attention_workspace(const CachedAttentionArgs<S>& args) {
  const std::int64_t of_one = least(args.heads, kHeadsOfCall) * (kKeys + 2 * args.d_head);
  return most(attention_forward_workspace(as_queries(args)), of_one);
}

template <class S>
TENON_INLINE AttentionHead<S> kept_head(const CachedAttentionArgs<S>& args, std::int64_t head) {
  const std::int64_t row = args.heads * args.d_head, kept = args.kv_heads * args.d_head;
  const std::int64_t key_head = head / (args.heads / args.kv_heads);
  AttentionHead<S> of{};
  of.q = {args.q + head * args.d_head, row, 1};
  of.k = {args.keys, kept, 1};
  of.v = {args.values, kept, 1};
  of.documents = args.kept_documents;
  of.key_head = key_head;
  of.out_offset = head * args.d_head;
  of.positions = args.positions;
  of.key_offset = key_head * args.d_head;
  return of;
}

/// scores[h][j] = q_h k_j for the keys [j, j + 64) of a block. q: float, [H, d].
template <int H, class S>
TENON_INLINE void score_block(const float* q, std::int64_t d, Strided<S> keys, std::int64_t count,
                              float* scores) {
  std::int64_t j = 0;
  if (count == kKeys) {
    constexpr int kGroups = kKeys / kLanes;
    F sums[H][kGroups];
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) sums[h][g] = splat(0.0f);
    for (std::int64_t c = 0; c < d; ++c) {
      const S* at = keys.at(c, 0);
      prefetch_lines(at + kKeys * d, kKeys);  // of the next block
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        const F k = load(at + g * kLanes);
#pragma GCC unroll 4
        for (int h = 0; h < H; ++h) sums[h][g] = mul_add(splat(q[h * d + c]), k, sums[h][g]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) store(scores + h * kKeys + g * kLanes, sums[h][g]);
    return;
  }
  for (; j < count; j += kLanes) {
    const std::int64_t n = least(kLanes, count - j);
    F sums[H];
    for (int h = 0; h < H; ++h) sums[h] = splat(0.0f);
    for (std::int64_t c = 0; c < d; ++c) {
      const F k = load_group(keys.at(c, j), n);
      for (int h = 0; h < H; ++h) sums[h] = mul_add(splat(q[h * d + c]), k, sums[h]);
    }
    for (int h = 0; h < H; ++h) store_group(scores + h * kKeys + j, sums[h], n);
  }
}

/// sums[h] += weights[h] V for columns [c, c + 16 V), of which the last 16 are `tail`.
template <int H, int V, class S>
TENON_INLINE void add_values(const float* weights, Strided<S> values, std::int64_t count, std::int64_t c,
                             std::int64_t tail, std::int64_t d, float* sums) {
  F of_block[H][V];
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) of_block[h][v] = splat(0.0f);
  for (std::int64_t j = 0; j < count; ++j) {
    const S* at = values.at(j, c);
    prefetch_lines(at + kKeys * d, V * kLanes);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const F value = load_group(at + v * kLanes, v + 1 == V ? tail : kLanes);
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h)
        of_block[h][v] = mul_add(splat(weights[h * kKeys + j]), value, of_block[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* to = sums + h * d + c + v * kLanes;
      const std::int64_t n = v + 1 == V ? tail : kLanes;
      store_group(to, load_group(to, n) + of_block[h][v], n);
    }
}

template <int H, class S>
TENON_INLINE void add_all_values(const float* weights, Strided<S> values, std::int64_t count, std::int64_t d,
                                 float* sums) {
  std::int64_t c = 0;
  for (; c + kValueColumns <= d; c += kValueColumns)
    add_values<H, kValueColumns / kLanes>(weights, values, count, c, kLanes, d, sums);
  for (; c + 2 * kLanes <= d; c += 2 * kLanes) add_values<H, 2>(weights, values, count, c, kLanes, d, sums);
  for (; c + kLanes <= d; c += kLanes) add_values<H, 1>(weights, values, count, c, kLanes, d, sums);
  if (c < d) add_values<H, 1>(weights, values, count, c, d - c, d, sums);
}

/// Calls some(first head) for kQueryHeads heads of [from, to) at a time, and one(head) for the rest.
template <class Some, class One>
TENON_INLINE void for_heads(std::int64_t from, std::int64_t to, Some some, One one) {
  std::int64_t h = from;
  for (; h + kQueryHeads <= to; h += kQueryHeads) some(h);
  for (; h < to; ++h) one(h);
}

/// The only place of a pass, for the query heads [begin, end). All heads take a block of keys before any
/// takes the next: keys and values of a sequence are then read as they are in memory.
template <class S>
void cached_attention_one(const CachedAttentionArgs<S>& args, std::int64_t begin, std::int64_t end,
                          float* workspace) {
  const std::int64_t d = args.d_head, heads = end - begin, group = args.heads / args.kv_heads;
  const std::int64_t position = args.first;
  const AttentionArgs<S> all = as_queries(args);
  float* scores = workspace;
  float* sums = scores + heads * kKeys;
  float* q = sums + heads * d;
  const S* queries = args.q + begin * d;
  for_lanes(0, heads * d, [&](std::int64_t j, std::int64_t n) TENON_BODY {
    store_group(q + j, load_group(queries + j, n), n);
  });
  __builtin_memset(sums, 0, (heads * d) * sizeof(float));
  float highest[kHeadsOfCall], total[kHeadsOfCall];
  for (std::int64_t h = 0; h < heads; ++h) highest[h] = kMinusInfinity, total[h] = 0.0f;
  std::int64_t firsts[kQueries];
  first_keys(all, args.kept_documents, 0, 1, firsts);
  for (std::int64_t k0 = firsts[0] / kKeys * kKeys; k0 <= position; k0 += kKeys) {
    const std::int64_t keys = least(kKeys, all.keys - k0);
    for (std::int64_t from = 0; from < heads;) {
      const std::int64_t to = least(heads, ((begin + from) / group + 1) * group - begin);
      const AttentionHead<S> head = kept_head(args, begin + from);
      const Strided<S> k = head.keys_of(k0), v = head.values_of(k0, d);
      for_heads(
          from, to,
          [&](std::int64_t h)
              TENON_BODY { score_block<kQueryHeads>(q + h * d, d, k, keys, scores + h * kKeys); },
          [&](std::int64_t h) TENON_BODY { score_block<1>(q + h * d, d, k, keys, scores + h * kKeys); });
      for (std::int64_t h = from; h < to; ++h) {
        float* row = scores + h * kKeys;
        mask_row(all, nullptr, firsts[0], position, k0, keys, row);
        weigh_row(row, keys, d, highest[h], total[h], sums + h * d);
      }
      for_heads(
          from, to,
          [&](std::int64_t h)
              TENON_BODY { add_all_values<kQueryHeads>(scores + h * kKeys, v, keys, d, sums + h * d); },
          [&](std::int64_t h)
              TENON_BODY { add_all_values<1>(scores + h * kKeys, v, keys, d, sums + h * d); });
      from = to;
    }
  }
  for (std::int64_t h = 0; h < heads; ++h) put_output(sums + h * d, total[h], d, args.out + (begin + h) * d);
}

template <class S>
void cached_attention_forward(const CachedAttentionArgs<S>& args, std::int64_t item_begin,
                              std::int64_t item_end, float* workspace) {
  if (args.count == 1) {
    for (std::int64_t head = item_begin; head < item_end; head += kHeadsOfCall)
      cached_attention_one(args, head, least(item_end, head + kHeadsOfCall), workspace);
    return;
  }
  const AttentionArgs<S> all = as_queries(args);
  for_blocks_of_heads(item_begin, item_end, (args.count + kQueries - 1) / kQueries,
                      [&](std::int64_t head, std::int64_t q0, std::int64_t blocks) {
                        attention_forward_blocks(all, kept_head(args, head), q0, blocks, workspace);
                      });
}

}  // namespace
}  // namespace tenon::kernels
