// Backward pass of causal attention. With P = softmax, dP = dO V' and D = rowsum(dO O) = rowsum(P dP): dS = P
// (dP - D) scale; dQ = dS K; dK = dS' Q; dV = P' dO. P is recomputed from the logits and lse, tile by tile:
// dQ by tiles of queries over keys in ascending order, dK and dV by tiles of keys over queries in ascending
// order, over the query heads of a key head one after the other. bf16 rounds P and dS before they multiply K,
// Q and dO.
#pragma once

#include <tenon/kernels/cuda/attention_warps.hpp>

namespace tenon::kernels::cuda {

/// sums[batch, head, t] = sum over j of dO O: the D of both bodies below.
template <class S>
struct AttentionRowSums {
  using A = Arith<S>;
  static constexpr int kWarp = 32, kRows = kThreads / kWarp;
  AttentionArgs<S> args;
  A* sums;

  Grid mesh() const {
    const std::int64_t rows = args.batch * args.heads * args.time;
    return {(rows + kRows - 1) / kRows, kThreads, kThreads * sizeof(A)};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const AttentionRowSums& s = *this;
    const AttentionArgs<S>& g = args;
    A* const parts = block.shared<A>();
    block.each([&](int thread) {
      const std::int64_t row = block.index() * kRows + thread / kWarp;
      const std::int64_t time = row / g.heads % g.time, head = row % g.heads, batch = row / g.heads / g.time;
      A sum = 0;
      if (batch < g.batch) {
        const std::int64_t from = (batch * g.time + time) * g.out_row_stride + head * g.d_head;
        for (std::int64_t j = thread % kWarp; j < g.d_head; j += kWarp)
          sum = sum + get(g.dout[from + j]) * get(g.out[from + j]);
      }
      parts[thread] = sum;
    });
    for (int half = kWarp / 2; half > 0; half /= 2) {
      block.each([&](int thread) {
        if (thread % kWarp < half) parts[thread] = parts[thread] + parts[thread + half];
      });
    }
    block.each([&](int thread) {
      const std::int64_t row = block.index() * kRows + thread / kWarp;
      const std::int64_t time = row / g.heads % g.time, head = row % g.heads, batch = row / g.heads / g.time;
      if (thread % kWarp == 0 && batch < g.batch)
        s.sums[(batch * g.heads + head) * g.time + time] = parts[thread];
    });
  }
};

/// One row's lse and D in shared memory.
template <class S>
struct AttentionRows {
  Arith<S>*lse, *sums;

  TENON_BOTH void load(const AttentionArgs<S>& g, const Arith<S>* row_sums, std::int64_t batch,
                       std::int64_t head, std::int64_t first, int thread) const {
    if (thread >= AttentionTiles<S>::kRows) return;
    const std::int64_t query = first + thread, row = (batch * g.heads + head) * g.time + query;
    lse[thread] = query < g.time ? g.lse[row] : 0;
    sums[thread] = query < g.time ? row_sums[row] : 0;
  }
};

/// P and dS of one element, from its raw logit and dP, and its query's lse and D.
template <class A>
struct AttentionPair {
  A p, ds;
};
template <class A>
TENON_BOTH AttentionPair<A> attention_pair(bool visible, A score, A dp, A scale, A lse, A sum) {
  if (!visible) return {A{0}, A{0}};
  const A p = std::exp(score * scale - lse);
  return {p, p * (dp - sum) * scale};
}

/// Writes dq.
template <class S>
struct AttentionQueryGradient {
  using A = Arith<S>;
  using Tiles = AttentionTiles<S>;
  AttentionArgs<S> args;
  const A* row_sums;

  Grid mesh() const {
    const Tiles tiles(args.d_head);
    return attention_grid(
        args, AttentionSide::kQueries,
        3 * tiles.operand + tiles.result + 2 * Tiles::kScores + Tiles::kWeights + 2 * Tiles::kPerRow);
  }

  TENON_BOTH void operator()(const Block& block) const {
    const AttentionArgs<S>& g = args;
    const A* const sums = row_sums;
    const Tiles tiles(args.d_head);
    const AttentionPlace place = attention_place(args, block, tiles.slices, AttentionSide::kQueries);
    const std::int64_t key_head = place.head / (g.heads / g.kv_heads);
    const auto of_q = query_rows(g, place.batch, place.head, g.q, g.q_row_stride);
    const auto of_dout = query_rows(g, place.batch, place.head, g.dout, g.out_row_stride);
    const auto of_k = key_rows(g, place.batch, key_head, g.k, g.kv_row_stride);
    const auto of_v = key_rows(g, place.batch, key_head, g.v, g.kv_row_stride);
    constexpr int kRows = Tiles::kRows, kParts = Tiles::kParts;

    std::size_t at = 0;
    S* const q = block.shared<S>(at);
    S* const dout = block.shared<S>(at += tiles.operand);
    S* const kv = block.shared<S>(at += tiles.operand);
    A* const result = block.shared<A>(at += tiles.operand);
    A* const dp = block.shared<A>(at += tiles.result);
    A* const scores = block.shared<A>(at += Tiles::kScores);
    S* const weights = block.shared<S>(Tiles::kNarrow ? at + Tiles::kScores : at);
    at += Tiles::kScores + Tiles::kWeights;
    const AttentionRows<S> rows{block.shared<A>(at), block.shared<A>(at + Tiles::kPerRow)};

    const bool whole = tiles.slices == 1;
    block.each([&](int thread) {
      for (int i = thread; i < kRows * tiles.result_stride; i += kThreads) result[i] = 0;
      rows.load(g, sums, place.batch, place.head, place.first, thread);
      if (!whole) return;
      load_rows(g, tiles, of_q, place.first, 0, q, thread);
      load_rows(g, tiles, of_dout, place.first, 0, dout, thread);
    });
    const std::int64_t end = attention_end_keys(g, place);
    for (std::int64_t key = attention_first_keys(g, place); key < end; key += kRows) {
      for (int slice = 0; slice < tiles.slices; ++slice) {
        block.each([&](int thread) {
          load_rows(g, tiles, of_v, key, slice, kv, thread);
          if (!whole) load_rows(g, tiles, of_dout, place.first, slice, dout, thread);
        });
        add_scores(block, tiles, dout, kv, dp, slice > 0);
      }
      for (int slice = 0; slice < tiles.slices; ++slice) {
        block.each([&](int thread) {
          load_rows(g, tiles, of_k, key, slice, kv, thread);
          if (!whole) load_rows(g, tiles, of_q, place.first, slice, q, thread);
        });
        add_scores(block, tiles, q, kv, scores, slice > 0);
      }
      block.each([&](int thread) {
        if (!whole) load_rows(g, tiles, of_k, key, place.slice, kv, thread);
        const int row = thread / kParts;
        for (int column = thread % kParts; column < kRows; column += kParts) {
          const int i = row * Tiles::kScoreStride + column;
          const bool visible = attention_visible(g, place.batch, place.first + row, key + column);
          const auto pair = attention_pair(visible, scores[i], dp[i], g.scale, rows.lse[row], rows.sums[row]);
          weights[row * Tiles::kWeightStride + column] = put<S>(pair.ds);
        }
      });
      add_weighted<Stored::kPlain>(block, tiles, weights, kv, result);
    }
    block.each([&](int thread) {
      store_rows(g, tiles, place, result, query_rows(g, place.batch, place.head, g.dq, g.dq_row_stride),
                 thread, [](int, A sum) { return sum; });
    });
  }
};

/// Writes dk and dv.
template <class S>
struct AttentionKeyGradients {
  using A = Arith<S>;
  using Tiles = AttentionTiles<S>;
  AttentionArgs<S> args;
  const A* row_sums;

  Grid mesh() const {
    const Tiles tiles(args.d_head);
    return attention_grid(
        args, AttentionSide::kKeys,
        3 * tiles.operand + 2 * tiles.result + 2 * Tiles::kScores + 2 * Tiles::kWeights + 2 * Tiles::kPerRow);
  }

  TENON_BOTH void operator()(const Block& block) const {
    const AttentionArgs<S>& g = args;
    const A* const sums = row_sums;
    const Tiles tiles(args.d_head);
    const AttentionPlace place = attention_place(args, block, tiles.slices, AttentionSide::kKeys);
    const std::int64_t group = g.heads / g.kv_heads;
    const auto of_k = key_rows(g, place.batch, place.head, g.k, g.kv_row_stride);
    const auto of_v = key_rows(g, place.batch, place.head, g.v, g.kv_row_stride);
    constexpr int kRows = Tiles::kRows, kParts = Tiles::kParts;

    std::size_t at = 0;
    S* const k = block.shared<S>(at);
    S* const v = block.shared<S>(at += tiles.operand);
    S* const other = block.shared<S>(at += tiles.operand);  // Q or dO of the current tile of queries
    A* const dk = block.shared<A>(at += tiles.operand);
    A* const dv = block.shared<A>(at += tiles.result);
    A* const scores = block.shared<A>(at += tiles.result);
    A* const dp = block.shared<A>(at += Tiles::kScores);
    at += Tiles::kScores;
    S* const p_weights = Tiles::kNarrow ? block.shared<S>(at) : block.shared<S>(at - 2 * Tiles::kScores);
    S* const ds_weights =
        Tiles::kNarrow ? block.shared<S>(at + Tiles::kWeights) : block.shared<S>(at - Tiles::kScores);
    at += 2 * Tiles::kWeights;
    const AttentionRows<S> rows{block.shared<A>(at), block.shared<A>(at + Tiles::kPerRow)};

    const bool whole = tiles.slices == 1;
    block.each([&](int thread) {
      for (int i = thread; i < kRows * tiles.result_stride; i += kThreads) dk[i] = dv[i] = 0;
      if (!whole) return;
      load_rows(g, tiles, of_k, place.first, 0, k, thread);
      load_rows(g, tiles, of_v, place.first, 0, v, thread);
    });
    const std::int64_t first = attention_first_queries(g, place.first), last = attention_last_query(g, place);
    for (std::int64_t head = place.head * group; head < (place.head + 1) * group; ++head) {
      const auto of_q = query_rows(g, place.batch, head, g.q, g.q_row_stride);
      const auto of_dout = query_rows(g, place.batch, head, g.dout, g.out_row_stride);
      for (std::int64_t query = first; query <= last; query += kRows) {
        for (int slice = 0; slice < tiles.slices; ++slice) {
          block.each([&](int thread) {
            rows.load(g, sums, place.batch, head, query, thread);
            load_rows(g, tiles, of_q, query, slice, other, thread);
            if (!whole) load_rows(g, tiles, of_k, place.first, slice, k, thread);
          });
          add_scores(block, tiles, other, k, scores, slice > 0);
        }
        for (int slice = 0; slice < tiles.slices; ++slice) {
          block.each([&](int thread) {
            load_rows(g, tiles, of_dout, query, slice, other, thread);
            if (!whole) load_rows(g, tiles, of_v, place.first, slice, v, thread);
          });
          add_scores(block, tiles, other, v, dp, slice > 0);
        }
        block.each([&](int thread) {
          if (!whole) load_rows(g, tiles, of_dout, query, place.slice, other, thread);
          const int row = thread / kParts;
          for (int column = thread % kParts; column < kRows; column += kParts) {
            const int i = row * Tiles::kScoreStride + column, w = row * Tiles::kWeightStride + column;
            const bool visible = attention_visible(g, place.batch, query + row, place.first + column);
            const auto pair =
                attention_pair(visible, scores[i], dp[i], g.scale, rows.lse[row], rows.sums[row]);
            p_weights[w] = put<S>(pair.p);
            ds_weights[w] = put<S>(pair.ds);
          }
        });
        add_weighted<Stored::kTransposed>(block, tiles, p_weights, other, dv);
        block.each([&](int thread) { load_rows(g, tiles, of_q, query, place.slice, other, thread); });
        add_weighted<Stored::kTransposed>(block, tiles, ds_weights, other, dk);
      }
    }
    block.each([&](int thread) {
      const auto as_is = [](int, A sum) { return sum; };
      store_rows(g, tiles, place, dk, key_rows(g, place.batch, place.head, g.dk, g.dkv_row_stride), thread,
                 as_is);
      store_rows(g, tiles, place, dv, key_rows(g, place.batch, place.head, g.dv, g.dkv_row_stride), thread,
                 as_is);
    });
  }
};

/// Logits and dP of a block's own rows with the others', in registers, and P and dS in their place.
template <int kWidth>
struct AttentionPairs {
  using W = AttentionWarps<kWidth>;
  PerThread<typename W::Scores> p, ds;

  /// Own rows and others of the logits, then of dP. pair(row, column, logit, dp) is that of an own row and
  /// another one.
  template <class Pair>
  TENON_BOTH void find(const Block& block, const Bf16* own, const Bf16* other, const Bf16* own_dp,
                       const Bf16* other_dp, Pair pair) {
    W::find_logits(block, own, other, p);
    W::find_logits(block, own_dp, other_dp, ds);
    block.each_apart([&](int thread) {
      W::template for_each_sum<W::kLogits>([&](int n, int i) {
        float& logit = p[thread].at[n].at[i];
        float& dp = ds[thread].at[n].at[i];
        const AttentionPair<float> found = pair(W::row(thread, i), W::column(thread, n, i), logit, dp);
        logit = found.p;
        dp = found.ds;
      });
    });
  }
  /// result += P or dS, rounded, times the rows of `other`.
  TENON_BOTH static void add(const Block& block, PerThread<typename W::Scores>& weights, const Bf16* other,
                             PerThread<typename W::Result>& result) {
    PerThread<typename W::Weights> rounded;
    block.each_apart([&](int thread) { rounded[thread] = W::rounded(weights[thread]); });
    W::add_weighted(block, rounded, other, result);
  }
};

/// AttentionQueryGradient in registers, for bf16 and heads of up to kWidth columns.
template <int kWidth>
struct AttentionQueryGradientWarps {
  using W = AttentionWarps<kWidth>;
  AttentionArgs<Bf16> args;
  const float* row_sums;

  static constexpr std::size_t kPerRow = AttentionTiles<Bf16>::kPerRow;
  Grid mesh() const {
    return {attention_grid(args, AttentionSide::kQueries, 0).blocks, W::kBlockThreads,
            4 * W::kTile + 2 * kPerRow};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const AttentionArgs<Bf16>& g = args;
    const float* const sums = row_sums;
    const AttentionPlace place = attention_place(args, block, 1, AttentionSide::kQueries);
    const std::int64_t key_head = place.head / (g.heads / g.kv_heads);
    const auto of_q = query_rows(g, place.batch, place.head, g.q, g.q_row_stride);
    const auto of_dout = query_rows(g, place.batch, place.head, g.dout, g.out_row_stride);
    const auto of_k = key_rows(g, place.batch, key_head, g.k, g.kv_row_stride);
    const auto of_v = key_rows(g, place.batch, key_head, g.v, g.kv_row_stride);
    Bf16* const q = block.shared<Bf16>();
    Bf16* const dout = block.shared<Bf16>(W::kTile);
    Bf16* const k = block.shared<Bf16>(2 * W::kTile);
    Bf16* const v = block.shared<Bf16>(3 * W::kTile);
    const AttentionRows<Bf16> rows{block.shared<float>(4 * W::kTile),
                                   block.shared<float>(4 * W::kTile + kPerRow)};
    AttentionPairs<kWidth> pairs;
    PerThread<typename W::Result> dq;

    block.each_apart([&](int thread) {
      W::load(g, of_q, place.first, q, thread);
      W::load(g, of_dout, place.first, dout, thread);
      rows.load(g, sums, place.batch, place.head, place.first, thread);
      dq[thread] = {};
    });
    const std::int64_t end = attention_end_keys(g, place);
    for (std::int64_t key = attention_first_keys(g, place); key < end; key += W::kRows) {
      const bool all = attention_sees_all(g, place.first, key);
      block.each([&](int thread) {
        W::load(g, of_k, key, k, thread);
        W::load(g, of_v, key, v, thread);
      });
      pairs.find(block, q, k, dout, v, [&](int row, int column, float logit, float dp) {
        const bool visible = all || attention_visible(g, place.batch, place.first + row, key + column);
        return attention_pair(visible, logit, dp, g.scale, rows.lse[row], rows.sums[row]);
      });
      pairs.add(block, pairs.ds, k, dq);
      block.each([](int) {});  // all have read the keys and values before the next ones come
    }
    W::store(block, g, dq, query_rows(g, place.batch, place.head, g.dq, g.dq_row_stride), place.first, q,
             [](int, int, float sum) { return sum; });
  }
};

/// AttentionKeyGradients likewise. A warp's own rows are keys, so logits are those of their transposed
/// matrix.
template <int kWidth>
struct AttentionKeyGradientsWarps {
  using W = AttentionWarps<kWidth>;
  AttentionArgs<Bf16> args;
  const float* row_sums;

  static constexpr std::size_t kPerRow = AttentionTiles<Bf16>::kPerRow;
  Grid mesh() const {
    return {attention_grid(args, AttentionSide::kKeys, 0).blocks, W::kBlockThreads,
            4 * W::kTile + 2 * kPerRow};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const AttentionArgs<Bf16>& g = args;
    const float* const sums = row_sums;
    const AttentionPlace place = attention_place(args, block, 1, AttentionSide::kKeys);
    const std::int64_t group = g.heads / g.kv_heads;
    const auto of_k = key_rows(g, place.batch, place.head, g.k, g.kv_row_stride);
    const auto of_v = key_rows(g, place.batch, place.head, g.v, g.kv_row_stride);
    Bf16* const k = block.shared<Bf16>();
    Bf16* const v = block.shared<Bf16>(W::kTile);
    Bf16* const q = block.shared<Bf16>(2 * W::kTile);
    Bf16* const dout = block.shared<Bf16>(3 * W::kTile);
    const AttentionRows<Bf16> rows{block.shared<float>(4 * W::kTile),
                                   block.shared<float>(4 * W::kTile + kPerRow)};
    AttentionPairs<kWidth> pairs;
    PerThread<typename W::Result> dk, dv;

    block.each_apart([&](int thread) {
      W::load(g, of_k, place.first, k, thread);
      W::load(g, of_v, place.first, v, thread);
      dk[thread] = dv[thread] = {};
    });
    const std::int64_t first = attention_first_queries(g, place.first), last = attention_last_query(g, place);
    for (std::int64_t head = place.head * group; head < (place.head + 1) * group; ++head) {
      const auto of_q = query_rows(g, place.batch, head, g.q, g.q_row_stride);
      const auto of_dout = query_rows(g, place.batch, head, g.dout, g.out_row_stride);
      for (std::int64_t query = first; query <= last; query += W::kRows) {
        const bool all = attention_sees_all(g, query, place.first);
        block.each([&](int thread) {
          W::load(g, of_q, query, q, thread);
          W::load(g, of_dout, query, dout, thread);
          rows.load(g, sums, place.batch, head, query, thread);
        });
        pairs.find(block, k, q, v, dout, [&](int row, int column, float logit, float dp) {
          const bool visible = all || attention_visible(g, place.batch, query + column, place.first + row);
          return attention_pair(visible, logit, dp, g.scale, rows.lse[column], rows.sums[column]);
        });
        pairs.add(block, pairs.p, dout, dv);
        pairs.add(block, pairs.ds, q, dk);
        block.each([](int) {});  // all have read the queries before the next ones come
      }
    }
    const auto as_is = [](int, int, float sum) { return sum; };
    W::store(block, g, dk, key_rows(g, place.batch, place.head, g.dk, g.dkv_row_stride), place.first, q,
             as_is);
    W::store(block, g, dv, key_rows(g, place.batch, place.head, g.dv, g.dkv_row_stride), place.first, q,
             as_is);
  }
};

}  // namespace tenon::kernels::cuda
