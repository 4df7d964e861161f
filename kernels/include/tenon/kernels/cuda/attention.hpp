// Forward pass of causal attention, in one pass over the keys: the softmax is rescaled whenever a tile of
// keys has a larger logit, so nothing of the size time x time is stored. Sums run over keys in an order that
// depends on the shape alone. bf16 rounds probabilities, as they are relative to the largest logit so far,
// before they multiply V: an output is off by at most 2^-8 of the largest |V| that its query sees, beside its
// own rounding.
#pragma once

#include <tenon/kernels/cuda/attention_warps.hpp>

namespace tenon::kernels::cuda {

/// Bytes of shared memory of attention_forward_tile().
template <class S>
std::size_t attention_forward_shared(std::int64_t d_head) {
  using Tiles = AttentionTiles<S>;
  const Tiles tiles(d_head);
  return 2 * tiles.operand + tiles.result + Tiles::kScores + Tiles::kWeights + 2 * Tiles::kPerRow +
         kThreads * sizeof(Arith<S>);
}

/// A tile of queries against all keys that some of them sees: writes their out, and lse where it is given. An
/// output depends on its query and the keys and values that it sees, not on the other queries of the tile.
template <class S>
TENON_BOTH void attention_forward_tile(const Block& block, const AttentionArgs<S>& g,
                                       const AttentionPlace& place) {
  using A = Arith<S>;
  using Tiles = AttentionTiles<S>;
  const Tiles tiles(g.d_head);
  const std::int64_t key_head = place.head / (g.heads / g.kv_heads);
  const auto of_q = query_rows(g, place.batch, place.head, g.q, g.q_row_stride);
  const auto of_k = key_rows(g, place.batch, key_head, g.k, g.kv_row_stride);
  const auto of_v = key_rows(g, place.batch, key_head, g.v, g.kv_row_stride);
  constexpr A kHidden = -std::numeric_limits<A>::infinity();
  constexpr int kRows = Tiles::kRows, kParts = Tiles::kParts;

  std::size_t at = 0;
  S* const q = block.shared<S>(at);
  S* const kv = block.shared<S>(at += tiles.operand);
  A* const result = block.shared<A>(at += tiles.operand);
  A* const scores = block.shared<A>(at += tiles.result);
  S* const weights = block.shared<S>(Tiles::kNarrow ? at + Tiles::kScores : at);
  A* const highest = block.shared<A>(at += Tiles::kScores + Tiles::kWeights);
  A* const total = block.shared<A>(at += Tiles::kPerRow);
  A* const parts = block.shared<A>(at += Tiles::kPerRow);
  PerThread<A> most;  // the largest logit so far of the thread's row
  PerThread<A> sums;  // of its columns of that row, relative to it

  block.each([&](int thread) {
    for (int i = thread; i < kRows * tiles.result_stride; i += kThreads) result[i] = 0;
    most[thread] = kHidden;
    sums[thread] = 0;
    if (tiles.slices == 1) load_rows(g, tiles, of_q, place.first, 0, q, thread);
  });
  const std::int64_t end = attention_end_keys(g, place);
  for (std::int64_t key = attention_first_keys(g, place); key < end; key += kRows) {
    for (int slice = 0; slice < tiles.slices; ++slice) {
      block.each([&](int thread) {
        load_rows(g, tiles, of_k, key, slice, kv, thread);
        if (tiles.slices > 1) load_rows(g, tiles, of_q, place.first, slice, q, thread);
      });
      add_scores(block, tiles, q, kv, scores, slice > 0);
    }
    block.each([&](int thread) {
      load_rows(g, tiles, of_v, key, place.slice, kv, thread);
      const int row = thread / kParts;
      A largest = kHidden;
      for (int column = thread % kParts; column < kRows; column += kParts) {
        A& score = scores[row * Tiles::kScoreStride + column];
        const bool visible = attention_visible(g, place.batch, place.first + row, key + column);
        score = visible ? score * g.scale : kHidden;
        largest = largest < score ? score : largest;
      }
      parts[thread] = largest;
    });
    block.each([&](int thread) {
      const int row = thread / kParts;
      A now = most[thread];
      for (int part = 0; part < kParts; ++part) {
        const A largest = parts[row * kParts + part];
        now = now < largest ? largest : now;
      }
      const A shrink = now == most[thread] ? A{1} : std::exp(most[thread] - now);
      most[thread] = now;
      A sum = 0;
      for (int column = thread % kParts; column < kRows; column += kParts) {
        const A score = scores[row * Tiles::kScoreStride + column];
        const A weight = score == kHidden ? A{0} : std::exp(score - now);
        weights[row * Tiles::kWeightStride + column] = put<S>(weight);
        sum = sum + weight;
      }
      sums[thread] = sums[thread] * shrink + sum;
      for (int column = thread % kParts; column < tiles.width; column += kParts)
        result[row * tiles.result_stride + column] *= shrink;
    });
    add_weighted<Stored::kPlain>(block, tiles, weights, kv, result);
  }
  block.each([&](int thread) {
    parts[thread] = sums[thread];
    if (thread % kParts == 0) highest[thread / kParts] = most[thread];
  });
  block.each([&](int thread) {
    if (thread >= kRows) return;
    A sum = 0;
    for (int part = 0; part < kParts; ++part) sum = sum + parts[thread * kParts + part];
    total[thread] = sum;
    const std::int64_t query = place.first + thread;
    if (g.lse != nullptr && place.slice == 0 && query < g.time) {
      g.lse[(place.batch * g.heads + place.head) * g.time + query] =
          sum == 0 ? kHidden : highest[thread] + std::log(sum);
    }
  });
  block.each([&](int thread) {
    store_rows(g, tiles, place, result, query_rows(g, place.batch, place.head, g.out, g.out_row_stride),
               thread, [&](int row, A sum) { return total[row] == 0 ? A{0} : sum / total[row]; });
  });
}

template <class S>
struct AttentionForward {
  AttentionArgs<S> args;

  Grid mesh() const {
    return attention_grid(args, AttentionSide::kQueries, attention_forward_shared<S>(args.d_head));
  }

  TENON_BOTH void operator()(const Block& block) const {
    const AttentionTiles<S> tiles(args.d_head);
    attention_forward_tile(block, args, attention_place(args, block, tiles.slices, AttentionSide::kQueries));
  }
};

/// A number for each of a thread's two rows.
struct RowPair {
  float of[2];
};
template <class Op>
struct OfBothRows {
  TENON_BOTH RowPair operator()(const RowPair& a, const RowPair& b) const {
    return {{Op{}(a.of[0], b.of[0]), Op{}(a.of[1], b.of[1])}};
  }
};

/// attention_forward_tile() in registers, for bf16 and heads of up to kWidth columns.
template <int kWidth>
TENON_BOTH void attention_forward_warps(const Block& block, const AttentionArgs<Bf16>& g,
                                        const AttentionPlace& place) {
  using W = AttentionWarps<kWidth>;
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const std::int64_t key_head = place.head / (g.heads / g.kv_heads);
  const auto of_q = query_rows(g, place.batch, place.head, g.q, g.q_row_stride);
  const auto of_k = key_rows(g, place.batch, key_head, g.k, g.kv_row_stride);
  const auto of_v = key_rows(g, place.batch, key_head, g.v, g.kv_row_stride);
  Bf16* const q = block.shared<Bf16>();
  Bf16* const k = block.shared<Bf16>(W::kTile);
  Bf16* const v = block.shared<Bf16>(2 * W::kTile);
  PerThread<typename W::Scores> scores;
  PerThread<typename W::Weights> weights;
  PerThread<typename W::Result> result;
  PerThread<RowPair> most, sums, largest;  // the largest logit so far, the sum of weights relative to it

  block.each_apart([&](int thread) {
    W::load(g, of_q, place.first, q, thread);
    result[thread] = {};
    most[thread] = {{kHidden, kHidden}};
    sums[thread] = {{0, 0}};
  });
  const std::int64_t end = attention_end_keys(g, place);
  for (std::int64_t key = attention_first_keys(g, place); key < end; key += W::kRows) {
    const bool all = attention_sees_all(g, place.first, key);
    block.each([&](int thread) {
      W::load(g, of_k, key, k, thread);
      W::load(g, of_v, key, v, thread);
    });
    W::find_logits(block, q, k, scores);
    block.each_apart([&](int thread) {
      RowPair found{{kHidden, kHidden}};
      W::template for_each_sum<W::kLogits>([&](int n, int i) {
        float& score = scores[thread].at[n].at[i];
        const bool visible = all || attention_visible(g, place.batch, place.first + W::row(thread, i),
                                                      key + W::column(thread, n, i));
        score = visible ? score * g.scale : kHidden;
        found.of[i / 2] = Larger{}(found.of[i / 2], score);
      });
      largest[thread] = found;
    });
    join_neighbours<4>(block, largest, OfBothRows<Larger>{});
    block.each_apart([&](int thread) {
      RowPair shrink, own{{0, 0}};
      TENON_UNROLL
      for (int r = 0; r < 2; ++r) {
        const float before = most[thread].of[r], now = Larger{}(before, largest[thread].of[r]);
        shrink.of[r] = now == before ? 1.0f : std::exp(before - now);
        most[thread].of[r] = now;
      }
      W::template for_each_sum<W::kLogits>([&](int n, int i) {
        float& score = scores[thread].at[n].at[i];
        score = score == kHidden ? 0.0f : std::exp(score - most[thread].of[i / 2]);
        own.of[i / 2] = own.of[i / 2] + score;
      });
      weights[thread] = W::rounded(scores[thread]);
      TENON_UNROLL
      for (int r = 0; r < 2; ++r) sums[thread].of[r] = sums[thread].of[r] * shrink.of[r] + own.of[r];
      W::template for_each_sum<W::kResults>(
          [&](int n, int i) { result[thread].at[n].at[i] *= shrink.of[i / 2]; });
    });
    W::add_weighted(block, weights, v, result);
    block.each([](int) {});  // all have read the keys and values before the next ones come
  }
  join_neighbours<4>(block, sums, OfBothRows<Add>{});
  block.each_apart([&](int thread) {
    if (g.lse == nullptr || thread % 4 != 0) return;
    for (int r = 0; r < 2; ++r) {
      const std::int64_t query = place.first + W::row(thread, 2 * r);
      const float sum = sums[thread].of[r];
      if (query < g.time)
        g.lse[(place.batch * g.heads + place.head) * g.time + query] =
            sum == 0 ? kHidden : most[thread].of[r] + std::log(sum);
    }
  });
  W::store(block, g, result, query_rows(g, place.batch, place.head, g.out, g.out_row_stride), place.first, q,
           [&](int thread, int i, float sum) {
             const float total = sums[thread].of[i / 2];
             return total == 0 ? 0.0f : sum / total;
           });
}

template <int kWidth>
struct AttentionForwardWarps {
  AttentionArgs<Bf16> args;

  static constexpr std::size_t kShared = 3 * AttentionWarps<kWidth>::kTile;
  Grid mesh() const {
    return {attention_grid(args, AttentionSide::kQueries, 0).blocks, AttentionWarps<kWidth>::kBlockThreads,
            kShared};
  }
  TENON_BOTH void operator()(const Block& block) const {
    attention_forward_warps<kWidth>(block, args, attention_place(args, block, 1, AttentionSide::kQueries));
  }
};

}  // namespace tenon::kernels::cuda
