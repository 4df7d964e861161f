// Causal attention on bfloat16 by tiles (contract: attention.hpp; blocks and order of sums as in
// attention.inc.hpp). Blocks of scores are kept transposed, [keys, queries]: each query is then a lane, sums
// and maxima over keys need no folding of lanes, and no block is transposed inside the loops. Operands of a
// head are copied once into the orders of tiles.inc.hpp, with zeros up to whole blocks.
#pragma once

#include "isa/attention.inc.hpp"
#include "isa/tiles.inc.hpp"

namespace tenon::kernels {
namespace {

static_assert(kQueries == 64 && kKeys == 64);
constexpr std::int64_t kGroups = kQueries / kLanes;  ///< vectors of queries
constexpr std::int64_t kScores = kKeys * kQueries;

TENON_INLINE std::int64_t whole(std::int64_t n, std::int64_t of) {
  return (n + of - 1) / of * of;
}

/// Successive parts of a workspace, each at the start of a cache line.
class Room {
 public:
  explicit Room(float* workspace) : at_(workspace) {
    const auto address = reinterpret_cast<std::uintptr_t>(workspace);
    at_ += (64 - address % 64) % 64 / sizeof(float);
  }
  template <class T>
  T* take(std::int64_t count) {
    T* part = reinterpret_cast<T*>(at_);
    at_ += whole(count * static_cast<std::int64_t>(sizeof(T)), 64) / static_cast<std::int64_t>(sizeof(float));
    return part;
  }

 private:
  float* at_;
};

/// Workspace of backward (see attention_tiles_backward_heads); forward needs less.
std::int64_t attention_tiles_workspace(const AttentionArgs<Bf16>& args) {
  const std::int64_t d = whole(args.d_head, kTilePack), time = whole(args.time, kQueries),
                     keys = whole(args.keys, kKeys);
  const std::int64_t scores = 2 * kScores + 3 * kScores / 2, sums = 2 * whole(keys_held(args), kKeys) * d,
                     block = 2 * kKeys * d;
  return kLanes + scores + sums + block + 3 * keys * d / 2 + 2 * time * d + time * d + 2 * time;
}

/// Rows [row, row + 64) of a matrix [rows, d_head], padded with zeros: [64, d].
TENON_INLINE void copy_block(Strided<Bf16> from, std::int64_t row, std::int64_t rows, std::int64_t d_head,
                             Bf16* to, std::int64_t d) {
  for (std::int64_t i = 0; i < kKeys; ++i, to += d) {
    const bool there = row + i < rows;
    for (std::int64_t j = 0; j < d; j += 32) {
      const std::int64_t left = there ? d_head - j : 0;
      const __mmask32 mask = left >= 32 ? 0xffffffffu : left <= 0 ? 0u : (1u << left) - 1u;
      store_bits(to + j, _mm512_maskz_loadu_epi16(mask, left > 0 ? from.at(row + i, j) : from.data));
    }
  }
}

/// The first keys that the queries of a block see, where there are documents.
class DocumentStarts {
 public:
  TENON_INLINE DocumentStarts(const AttentionArgs<Bf16>& args, const std::int32_t* documents, std::int64_t q0,
                              std::int64_t queries)
      : there_(documents != nullptr) {
    if (!there_) return;
    std::int64_t firsts[kQueries];
    first_keys(args, documents, q0, queries, firsts);
    for (std::int64_t i = 0; i < kQueries; ++i) firsts_[i] = static_cast<std::int32_t>(firsts[i]);
  }
  /// Whether some query of the block does not see `key`.
  TENON_INLINE bool hide(std::int64_t key) const { return there_ && key < firsts_[kQueries - 1]; }
  /// Lanes of queries q0 + i .. q0 + i + 15 that do not see `key`.
  TENON_INLINE I hidden_lanes(std::int64_t key, std::int64_t i) const {
    if (!there_) return splat_int(0);
    I firsts;
    __builtin_memcpy(&firsts, firsts_ + i, sizeof firsts);
    return splat_int(static_cast<std::int32_t>(key)) < firsts;
  }

 private:
  bool there_;
  alignas(64) std::int32_t firsts_[kQueries];
};

/// Lanes of the queries at the places p .. p + 15 that do not see `key`, whatever its document.
TENON_INLINE I hidden_lanes(const AttentionArgs<Bf16>& args, const std::uint8_t* key_mask, std::int64_t key,
                            std::int64_t p) {
  if (key >= args.keys || (key_mask != nullptr && key_mask[key] == 0)) return splat_int(-1);
  // Lane l is the query at p + l; it sees keys in (p + l - window, p + l].
  const std::int64_t ahead = key - p, end = args.window > 0 ? ahead + args.window : kLanes;
  const I lane = lanes_from(0);
  const I before = lane < splat_int(static_cast<std::int32_t>(most(0, least(ahead, kLanes))));
  const I behind = splat_int(static_cast<std::int32_t>(most(-1, least(end - 1, kLanes)))) < lane;
  return before | behind;
}

/// Where some key of the block is hidden from some query, of which the first is at the place `position`,
/// scales the scores and sets hidden ones to -infinity. Returns the factor that the scores still need.
TENON_INLINE float mask_block(const AttentionArgs<Bf16>& args, const std::uint8_t* key_mask,
                              const DocumentStarts& starts, std::int64_t k0, std::int64_t position,
                              float* scores) {
  const bool late = k0 + kKeys > position + 1,
             early = args.window > 0 && k0 <= position + kQueries - 1 - args.window;
  if (!late && !early && !starts.hide(k0) && key_mask == nullptr) return args.scale;
  for (std::int64_t j = 0; j < kKeys; ++j)
    for (std::int64_t g = 0; g < kQueries; g += kLanes) {
      float* at = scores + j * kQueries + g;
      const I hidden = hidden_lanes(args, key_mask, k0 + j, position + g) | starts.hidden_lanes(k0 + j, g);
      store(at, select(hidden, splat(kMinusInfinity), load(at) * splat(args.scale)));
    }
  return 1.0f;
}

/// One block of keys in the forward pass: weights of 64 queries as pairs of keys, and the factors of the sums
/// so far.
TENON_INLINE void weigh_block(float logit_factor, const float* scores, Pair* weights, float* highest,
                              float* total, float* kept_out) {
  const F factor = splat(logit_factor), lowest = splat(kMinusInfinity);
  for (std::int64_t g = 0; g < kQueries; g += kLanes) {
    const float* column = scores + g;
    F here[4] = {lowest, lowest, lowest, lowest};
    for (std::int64_t j = 0; j < kKeys; j += 4)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) here[i] = max(load(column + (j + i) * kQueries) * factor, here[i]);
    const F before = load(highest + g);
    const F shift = max(max(max(here[0], here[1]), max(here[2], here[3])), before);
    const F base = select(shift == lowest, splat(0.0f), shift);
    // Before the first visible key the sums are zero (or NaN) whatever they are multiplied by.
    const F kept = select(before == lowest, splat(1.0f), exp(before - base));
    F even = splat(0.0f), odd = splat(0.0f);
    for (std::int64_t j = 0; j < kKeys; j += 2) {
      const F a = weight_exp(load(column + j * kQueries) * factor - base);
      const F b = weight_exp(load(column + (j + 1) * kQueries) * factor - base);
      even = even + a;
      odd = odd + b;
      const Halves both = to_halves(a, b);
      store_bits(weights + j / 2 * kQueries + g,
                 interleave_low(both, __builtin_shufflevector(both, both, 16, 17, 18, 19, 20, 21, 22, 23, 24,
                                                              25, 26, 27, 28, 29, 30, 31, 0, 1, 2, 3, 4, 5, 6,
                                                              7, 8, 9, 10, 11, 12, 13, 14, 15)));
    }
    store(total + g, mul_add(load(total + g), kept, even + odd));
    store(highest + g, shift);
    store(kept_out + g, kept);
  }
}

/// Keys and values of a key head in the orders of the forward pass, made block by block on first use.
struct ForwardOperands {
  Bf16* k;      ///< per block [keys, d]
  Bf16* v;      ///< per block its transpose, [d, keys]
  Bf16* rows;   ///< one block
  Pair* pairs;  ///< one block
  std::int64_t key_head = -1, begin = 0, end = 0;

  void prepare(const AttentionArgs<Bf16>& args, const AttentionHead<Bf16>& head, std::int64_t d,
               std::int64_t keys_begin, std::int64_t keys_end) {
    if (head.key_head != key_head || keys_begin < begin) begin = end = keys_begin;
    key_head = head.key_head;
    for (; end < keys_end; end += kKeys) {
      copy_block(head.k, end, args.keys, args.d_head, k + end * d, d);
      copy_block(head.v, end, args.keys, args.d_head, rows, d);
      interleave_rows(rows, kKeys, d, pairs);
      transpose_tiles(pairs, d, kKeys / 2, d, v + end * d, kKeys / 2);
    }
  }
};

void attention_tiles_forward(const AttentionArgs<Bf16>& args, std::int64_t item_begin, std::int64_t item_end,
                             float* workspace) {
  begin_tiles();
  const std::int64_t d = whole(args.d_head, kTilePack), blocks = (args.time + kQueries - 1) / kQueries,
                     all_keys = whole(args.keys, kKeys);
  Room room(workspace);
  auto* scores = room.take<float>(kScores);
  auto* weights = room.take<Pair>(kScores / 2);
  auto* sums = room.take<float>(d * kQueries);
  auto* q = room.take<Pair>(d / 2 * kQueries);
  ForwardOperands keys{room.take<Bf16>(all_keys * d), room.take<Bf16>(all_keys * d),
                       room.take<Bf16>(kKeys * d), room.take<Pair>(kKeys / 2 * d)};
  float highest[kQueries], total[kQueries], kept[kQueries];
  alignas(64) float line[kLanes * kLanes];
  for (std::int64_t item = item_begin; item < item_end; ++item) {
    const AttentionHead<Bf16> head = head_of(args, item / blocks);
    const std::int64_t q0 = item % blocks * kQueries, queries = least(kQueries, args.time - q0);
    const std::int64_t position = first_position(args) + q0;
    const DocumentStarts starts(args, head.documents, q0, queries);
    std::int64_t firsts[kQueries];
    first_keys(args, head.documents, q0, 1, firsts);
    const std::int64_t first = firsts[0] / kKeys * kKeys;
    keys.prepare(args, head, d, first, position + queries);
    copy_block(head.q, q0, args.time, args.d_head, keys.rows, d);
    transpose_tiles(keys.rows, d / 2, kQueries, d / 2, q, kQueries);
    for (std::int64_t i = 0; i < kQueries; ++i) highest[i] = kMinusInfinity, total[i] = 0.0f;
    for (std::int64_t k0 = first; k0 < position + queries; k0 += kKeys) {
      tile_product(kKeys, kQueries, d, keys.k + k0 * d, d, q, kQueries, scores, kQueries, false);
      const float factor = mask_block(args, head.key_mask, starts, k0, position, scores);
      weigh_block(factor, scores, weights, highest, total, kept);
      if (k0 > first)
        for (std::int64_t i = 0; i < d; ++i)
          for (std::int64_t g = 0; g < kQueries; g += kLanes) {
            float* at = sums + i * kQueries + g;
            store(at, load(at) * load(kept + g));
          }
      tile_product(d, kQueries, kKeys, keys.v + k0 * d, kKeys, weights, kQueries, sums, kQueries, k0 > first);
    }
    for (std::int64_t g = 0; g < queries; g += kLanes) {
      const F sum = load(total + g), none = splat(0.0f);
      const F inverse = select(sum == none, none, splat(1.0f) / sum);
      const std::int64_t lanes = least(kLanes, queries - g);
      for (std::int64_t i = 0; i < args.d_head; i += kLanes) {
        for (std::int64_t j = 0; j < kLanes; ++j)
          store(line + j * kLanes, load(sums + (i + j) * kQueries + g) * inverse);
        transpose_tile(line, kLanes, line, kLanes);
        Bf16* out = args.out + head.out_offset + (q0 + g) * args.out_row_stride + i;
        for (std::int64_t j = 0; j < lanes; ++j)
          store_group(out + j * args.out_row_stride, load(line + j * kLanes), least(kLanes, args.d_head - i));
      }
      if (args.lse != nullptr)
        store_group(args.lse + head.lse_offset + q0 + g,
                    select(sum == none, splat(kMinusInfinity), load(highest + g) + log(sum)), lanes);
    }
  }
  end_tiles();
}

/// Weights of a block and gradients of its logits, both [keys, queries], the latter also as pairs of keys.
TENON_INLINE void slope_block(float logit_factor, float scale, const float* scores, const float* slopes,
                              const float* lse, const float* delta, Bf16* weights, Bf16* gradients,
                              Pair* pairs) {
  const F factor = splat(logit_factor), outer = splat(scale);
  for (std::int64_t g = 0; g < kQueries; g += 2 * kLanes) {
    const F base[2] = {load(lse + g), load(lse + g + kLanes)};
    const F shift[2] = {load(delta + g), load(delta + g + kLanes)};
    for (std::int64_t j = 0; j < kKeys; j += 2) {
      Halves lines[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const std::int64_t at = (j + i) * kQueries + g;
        F p[2], ds[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          p[h] = weight_exp(load(scores + at + h * kLanes) * factor - base[h]);
          ds[h] = p[h] * (load(slopes + at + h * kLanes) - shift[h]) * outer;
        }
        lines[i] = to_halves(ds[0], ds[1]);
        store_bits(weights + at, to_halves(p[0], p[1]));
        store_bits(gradients + at, lines[i]);
      }
      store_bits(pairs + j / 2 * kQueries + g, interleave_low(lines[0], lines[1]));
      store_bits(pairs + j / 2 * kQueries + g + kLanes, interleave_high(lines[0], lines[1]));
    }
  }
}

/// Write the first d_head columns of lines of d into a gradient.
TENON_INLINE void put_lines(const float* from, std::int64_t d, std::int64_t lines, std::int64_t d_head,
                            Bf16* to, std::int64_t stride) {
  for (std::int64_t i = 0; i < lines; ++i)
    for_lanes(0, d_head, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      store_group(to + i * stride + j, load_group(from + i * d + j, n), n);
    });
}

/// The query heads that read one key head, in ascending order.
void attention_tiles_backward_heads(const AttentionArgs<Bf16>& args, std::int64_t key_head,
                                    float* workspace) {
  const std::int64_t d = whole(args.d_head, kTilePack), time = whole(args.time, kQueries),
                     all_keys = whole(args.keys, kKeys), held = whole(keys_held(args), kKeys);
  const std::int64_t group = args.heads / args.kv_heads;
  Room room(workspace);
  auto* scores = room.take<float>(kScores);
  auto* slopes = room.take<float>(kScores);
  auto* weights = room.take<Bf16>(kScores);
  auto* gradients = room.take<Bf16>(kScores);
  auto* gradient_pairs = room.take<Pair>(kScores / 2);
  auto* dk_held = room.take<float>(held * d);
  auto* dv_held = room.take<float>(held * d);
  auto* turned = room.take<float>(kQueries * d);
  auto* rows = room.take<Bf16>(kKeys * d);
  auto* pairs = room.take<Pair>(kKeys / 2 * d);
  auto* lse = room.take<float>(time);
  auto* delta = room.take<float>(time);   // per query: sum of dout out = sum of P dP
  auto* dq = room.take<float>(time * d);  // per block its transpose, [d, queries]
  // Per block: rows, and their orders for tiles.
  auto* k = room.take<Bf16>(all_keys * d);
  auto* v = room.take<Bf16>(all_keys * d);
  auto* k_transposed = room.take<Bf16>(all_keys * d);
  auto* q_columns = room.take<Pair>(time * d / 2);  // pairs along d_head
  auto* g_columns = room.take<Pair>(time * d / 2);
  auto* q_rows = room.take<Pair>(time * d / 2);  // pairs along queries
  auto* g_rows = room.take<Pair>(time * d / 2);

  const AttentionHead<Bf16> of_keys = head_of(args, key_head * group);
  for (std::int64_t t = 0; t < all_keys; t += kKeys) {
    copy_block(of_keys.k, t, args.keys, args.d_head, k + t * d, d);
    copy_block(of_keys.v, t, args.keys, args.d_head, v + t * d, d);
    interleave_rows(k + t * d, kKeys, d, pairs);
    transpose_tiles(pairs, d, kKeys / 2, d, k_transposed + t * d, kKeys / 2);
  }
  for (std::int64_t member = 0; member < group; ++member) {
    const AttentionHead<Bf16> head = head_of(args, key_head * group + member);
    const Strided<Bf16> dout{args.dout + head.out_offset, args.out_row_stride, 1};
    __builtin_memset(dq, 0, (time * d) * sizeof(float));
    for (std::int64_t t = 0; t < time; ++t) {
      F lanes = splat(0.0f);
      if (t < args.time)
        for_lanes(0, args.d_head, [&](std::int64_t j, std::int64_t n) TENON_BODY {
          const Bf16* out = args.out + head.out_offset + t * args.out_row_stride;
          lanes = mul_add(load_group(out + j, n), load_group(dout.at(t, j), n), lanes);
        });
      const float sum = t < args.time ? args.lse[head.lse_offset + t] : 0.0f;
      delta[t] = sum_lanes(lanes);
      lse[t] = sum == kMinusInfinity ? 0.0f : sum;
    }
    for (std::int64_t t = 0; t < time; t += kQueries) {
      const auto put = [&](Strided<Bf16> from, Pair* columns, Pair* as_rows) {
        copy_block(from, t, args.time, args.d_head, rows, d);
        transpose_tiles(rows, d / 2, kQueries, d / 2, columns + t * d / 2, kQueries);
        interleave_rows(rows, kQueries, d, as_rows + t * d / 2);
      };
      put(head.q, q_columns, q_rows);
      put(dout, g_columns, g_rows);
    }

    for (std::int64_t k0 = 0; k0 < args.keys; k0 += kKeys) {
      const std::int64_t keys = least(kKeys, args.keys - k0);
      float *dk = dk_held + (group > 1 ? k0 * d : 0), *dv = dv_held + (group > 1 ? k0 * d : 0);
      const QueryRange seen = queries_of(args, head.documents, k0, keys);
      bool more = member > 0;
      for (std::int64_t q0 = seen.begin / kQueries * kQueries; q0 < seen.end; q0 += kQueries) {
        const std::int64_t at = q0 * d / 2;
        const DocumentStarts starts(args, head.documents, q0, least(kQueries, args.time - q0));
        tile_product(kKeys, kQueries, d, k + k0 * d, d, q_columns + at, kQueries, scores, kQueries, false);
        tile_product(kKeys, kQueries, d, v + k0 * d, d, g_columns + at, kQueries, slopes, kQueries, false);
        const float factor = mask_block(args, head.key_mask, starts, k0, first_position(args) + q0, scores);
        slope_block(factor, args.scale, scores, slopes, lse + q0, delta + q0, weights, gradients,
                    gradient_pairs);
        tile_product(kKeys, d, kQueries, weights, kQueries, g_rows + at, d, dv, d, more);
        tile_product(kKeys, d, kQueries, gradients, kQueries, q_rows + at, d, dk, d, more);
        tile_product(d, kQueries, kKeys, k_transposed + k0 * d, kKeys, gradient_pairs, kQueries, dq + q0 * d,
                     kQueries, true);
        more = true;
      }
      if (!more) {  // no query sees these keys
        __builtin_memset(dk, 0, (kKeys * d) * sizeof(float));
        __builtin_memset(dv, 0, (kKeys * d) * sizeof(float));
      }
      if (member + 1 < group) continue;
      const std::int64_t to = head.dkv_offset + k0 * args.dkv_row_stride;
      put_lines(dk, d, keys, args.d_head, args.dk + to, args.dkv_row_stride);
      put_lines(dv, d, keys, args.d_head, args.dv + to, args.dkv_row_stride);
    }
    for (std::int64_t q0 = 0; q0 < args.time; q0 += kQueries) {
      transpose_tiles(dq + q0 * d, kQueries, d, kQueries, turned, d);
      put_lines(turned, d, least(kQueries, args.time - q0), args.d_head,
                args.dq + head.dq_offset + q0 * args.dq_row_stride, args.dq_row_stride);
    }
  }
}

void attention_tiles_backward(const AttentionArgs<Bf16>& args, std::int64_t item_begin, std::int64_t item_end,
                              float* workspace) {
  begin_tiles();
  for (std::int64_t item = item_begin; item < item_end; ++item)
    attention_tiles_backward_heads(args, item, workspace);
  end_tiles();
}

}  // namespace
}  // namespace tenon::kernels
