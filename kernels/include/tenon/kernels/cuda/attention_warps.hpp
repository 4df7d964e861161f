// Attention in bf16 with logits, probabilities and results in registers, for heads of up to kWidth columns:
// the formulas, tiles and order of attention.hpp and attention_backward.hpp. A warp has 16 rows of a block's
// tile of 64 and meets the 64 rows of the other side's tile in shared memory; four threads share a row.
// Logits are products of its own rows with the others, so that they are, rounded, the left side of the next
// product (warp_products.hpp).
#pragma once

#include <tenon/kernels/cuda/attention_tiles.hpp>
#include <tenon/kernels/cuda/warp_products.hpp>

namespace tenon::kernels::cuda {

template <int kWidth>
struct AttentionWarps {
  static_assert(kWidth % 16 == 0 && kWidth <= AttentionTiles<Bf16>::kSlice);
  static constexpr int kRows = AttentionTiles<Bf16>::kRows, kOwn = 16,
                       kBlockThreads = kRows / kOwn * kWarpThreads;
  static constexpr int kStride = kWidth + 8;  ///< an odd number of 16 bytes: rows begin at different banks
  static constexpr std::size_t kTile = std::size_t{kRows} * kStride * sizeof(Bf16);
  static constexpr int kLogits = kRows / 8, kDepths = kWidth / 16, kResults = kWidth / 8;

  /// A warp's 16 rows of a result.
  struct Result {
    WarpSums at[kResults];
  };
  /// Logits, and what becomes of them.
  struct Scores {
    WarpSums at[kLogits];
  };
  /// Them, rounded, as the left side of products.
  struct Weights {
    WarpOperand at[kLogits / 2];
  };

  /// The row of the tile of element i of a thread's sums, and the column of element i of sums n.
  TENON_BOTH static int row(int thread, int i) {
    return thread / kWarpThreads * kOwn + thread % kWarpThreads / 4 + i / 2 * 8;
  }
  TENON_BOTH static int column(int thread, int n, int i) { return n * 8 + thread % 4 * 2 + i % 2; }

  /// One thread's share of loading 64 rows; zeros beyond the last row and the head.
  TENON_BOTH static void load(const AttentionArgs<Bf16>& args, const HeadRows<const Bf16>& of,
                              std::int64_t first, Bf16* tile, int thread) {
    constexpr int kRun = 8, kAcross = kWidth / kRun;
    for (int i = thread; i < kRows * kAcross; i += kBlockThreads) {
      const int row = i / kAcross, column = i % kAcross * kRun;
      const int n = first + row < of.rows ? left_of(args.d_head, column, kRun) : 0;
      const Bf16* const from = n > 0 ? of.x + of.begin + (first + row) * of.row_stride + column : of.x;
      store_run<kRun>(tile + row * kStride + column, load_run<kRun>(from, n), kRun);
    }
  }

  /// sums += (16 rows of `own` by warp) (the rows of `other`)', over the head's columns.
  TENON_BOTH static void add_logits(const Block& block, const Bf16* own, const Bf16* other,
                                    PerThread<Scores>& sums) {
    PerThread<WarpOperand> a, b;
    TENON_UNROLL
    for (int d = 0; d < kDepths; ++d) {
      block.each_apart([&](int thread) {
        a[thread] = load_operand<WarpLoad::kRows>(own, kStride, thread / kWarpThreads * kOwn, d * 16, thread);
      });
      TENON_UNROLL
      for (int n = 0; n < kLogits; n += 2) {
        block.each_apart([&](int thread) {
          b[thread] = load_operand<WarpLoad::kColumns>(other, kStride, n * 8, d * 16, thread);
        });
        multiply_pair(block, n, a, b, sums);
      }
    }
  }

  /// result += weights (the rows of `other`)
  TENON_BOTH static void add_weighted(const Block& block, PerThread<Weights>& weights, const Bf16* other,
                                      PerThread<Result>& result) {
    PerThread<WarpOperand> b;
    TENON_UNROLL
    for (int l = 0; l < kLogits / 2; ++l) {
      TENON_UNROLL
      for (int n = 0; n < kResults; n += 2) {
        block.each_apart([&](int thread) {
          b[thread] = load_operand<WarpLoad::kTransposed>(other, kStride, l * 16, n * 8, thread);
        });
        TENON_UNROLL
        for (int i = 0; i < 2; ++i)
          multiply_warps(block, [&](int thread) {
            return WarpProduct{&result[thread].at[n + i],
                               &weights[thread].at[l],
                               {b[thread].word[2 * i], b[thread].word[2 * i + 1]}};
          });
      }
    }
  }

  TENON_BOTH static Weights rounded(const Scores& scores) {
    Weights result;
    TENON_UNROLL
    for (int l = 0; l < kLogits / 2; ++l) result.at[l] = as_operand(scores.at[2 * l], scores.at[2 * l + 1]);
    return result;
  }

  /// Writes the warps' rows, element i of which is value(thread, i, sum), through `tile`.
  template <class Value>
  TENON_BOTH static void store(const Block& block, const AttentionArgs<Bf16>& args, PerThread<Result>& result,
                               const HeadRows<Bf16>& to, std::int64_t first, Bf16* tile, Value value) {
    constexpr int kRun = 8, kAcross = kWidth / kRun;
    block.each([&](int thread) {
      TENON_UNROLL
      for (int n = 0; n < kResults; ++n) {
        TENON_UNROLL
        for (int i = 0; i < 4; ++i)
          tile[row(thread, i) * kStride + column(thread, n, i)] =
              to_bf16(value(thread, i, result[thread].at[n].at[i]));
      }
    });
    block.each([&](int thread) {
      for (int i = thread; i < kRows * kAcross; i += kBlockThreads) {
        const int row = i / kAcross, column = i % kAcross * kRun;
        const int n = first + row < to.rows ? left_of(args.d_head, column, kRun) : 0;
        if (n == 0) continue;
        store_run<kRun>(to.x + to.begin + (first + row) * to.row_stride + column,
                        load_run<kRun>(tile + row * kStride + column, kRun), n);
      }
    });
  }

 private:
  TENON_BOTH static void multiply_pair(const Block& block, int n, PerThread<WarpOperand>& a,
                                       PerThread<WarpOperand>& b, PerThread<Scores>& sums) {
    TENON_UNROLL
    for (int i = 0; i < 2; ++i)
      multiply_warps(block, [&](int thread) {
        return WarpProduct{
            &sums[thread].at[n + i], &a[thread], {b[thread].word[2 * i], b[thread].word[2 * i + 1]}};
      });
  }
};

/// Whether every query of a tile sees every key of a tile, so that no pair needs to be looked at.
TENON_BOTH inline bool attention_sees_all(const AttentionArgs<Bf16>& args, std::int64_t query,
                                          std::int64_t key) {
  constexpr std::int64_t kRows = AttentionTiles<Bf16>::kRows;
  const std::int64_t position = args.keys - args.time + query, last = kRows - 1;
  return args.documents == nullptr && args.key_mask == nullptr && query + last < args.time &&
         key + last <= position && (args.window <= 0 || key > position + last - args.window);
}

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

/// attention_forward_tile() for such heads.
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
      scores[thread] = {};
    });
    W::add_logits(block, q, k, scores);
    block.each_apart([&](int thread) {
      RowPair found{{kHidden, kHidden}};
      TENON_UNROLL
      for (int n = 0; n < W::kLogits; ++n) {
        TENON_UNROLL
        for (int i = 0; i < 4; ++i) {
          float& score = scores[thread].at[n].at[i];
          const bool visible = all || attention_visible(g, place.batch, place.first + W::row(thread, i),
                                                        key + W::column(thread, n, i));
          score = visible ? score * g.scale : kHidden;
          found.of[i / 2] = Larger{}(found.of[i / 2], score);
        }
      }
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
      TENON_UNROLL
      for (int n = 0; n < W::kLogits; ++n) {
        TENON_UNROLL
        for (int i = 0; i < 4; ++i) {
          float& score = scores[thread].at[n].at[i];
          score = score == kHidden ? 0.0f : std::exp(score - most[thread].of[i / 2]);
          own.of[i / 2] = own.of[i / 2] + score;
        }
      }
      weights[thread] = W::rounded(scores[thread]);
      TENON_UNROLL
      for (int r = 0; r < 2; ++r) sums[thread].of[r] = sums[thread].of[r] * shrink.of[r] + own.of[r];
      TENON_UNROLL
      for (int n = 0; n < W::kResults; ++n) {
        TENON_UNROLL
        for (int i = 0; i < 4; ++i) result[thread].at[n].at[i] *= shrink.of[i / 2];
      }
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

/// AttentionQueryGradient for such heads.
template <int kWidth>
struct AttentionQueryGradientWarps {
  using W = AttentionWarps<kWidth>;
  AttentionArgs<Bf16> args;
  const float* row_sums;

  Grid mesh() const {
    return {attention_grid(args, AttentionSide::kQueries, 0).blocks, W::kBlockThreads, 4 * W::kTile};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const AttentionArgs<Bf16>& g = args;
    const float* const of_rows = row_sums;
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
    PerThread<typename W::Scores> scores, dp;
    PerThread<typename W::Weights> weights;
    PerThread<typename W::Result> result;
    PerThread<RowPair> lse, sums;

    block.each_apart([&](int thread) {
      W::load(g, of_q, place.first, q, thread);
      W::load(g, of_dout, place.first, dout, thread);
      result[thread] = {};
      for (int r = 0; r < 2; ++r) {
        const std::int64_t query = place.first + W::row(thread, 2 * r);
        const std::int64_t row = (place.batch * g.heads + place.head) * g.time + query;
        lse[thread].of[r] = query < g.time ? g.lse[row] : 0;
        sums[thread].of[r] = query < g.time ? of_rows[row] : 0;
      }
    });
    const std::int64_t end = attention_end_keys(g, place);
    for (std::int64_t key = attention_first_keys(g, place); key < end; key += W::kRows) {
      const bool all = attention_sees_all(g, place.first, key);
      block.each([&](int thread) {
        W::load(g, of_k, key, k, thread);
        W::load(g, of_v, key, v, thread);
        scores[thread] = {};
        dp[thread] = {};
      });
      W::add_logits(block, q, k, scores);
      W::add_logits(block, dout, v, dp);
      block.each_apart([&](int thread) {
        TENON_UNROLL
        for (int n = 0; n < W::kLogits; ++n) {
          TENON_UNROLL
          for (int i = 0; i < 4; ++i) {
            float& score = scores[thread].at[n].at[i];
            const bool visible = all || attention_visible(g, place.batch, place.first + W::row(thread, i),
                                                          key + W::column(thread, n, i));
            score = visible ? std::exp(score * g.scale - lse[thread].of[i / 2]) *
                                  (dp[thread].at[n].at[i] - sums[thread].of[i / 2]) * g.scale
                            : 0.0f;
          }
        }
        weights[thread] = W::rounded(scores[thread]);
      });
      W::add_weighted(block, weights, k, result);
      block.each([](int) {});
    }
    W::store(block, g, result, query_rows(g, place.batch, place.head, g.dq, g.dq_row_stride), place.first, q,
             [](int, int, float sum) { return sum; });
  }
};

/// AttentionKeyGradients for such heads. A warp's own rows are keys, so logits are those of their transposed
/// matrix.
template <int kWidth>
struct AttentionKeyGradientsWarps {
  using W = AttentionWarps<kWidth>;
  AttentionArgs<Bf16> args;
  const float* row_sums;

  static constexpr std::size_t kNumbers = W::kRows * sizeof(float);
  Grid mesh() const {
    return {attention_grid(args, AttentionSide::kKeys, 0).blocks, W::kBlockThreads,
            4 * W::kTile + 2 * kNumbers};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const AttentionArgs<Bf16>& g = args;
    const float* const of_rows = row_sums;
    const AttentionPlace place = attention_place(args, block, 1, AttentionSide::kKeys);
    const std::int64_t group = g.heads / g.kv_heads;
    const auto of_k = key_rows(g, place.batch, place.head, g.k, g.kv_row_stride);
    const auto of_v = key_rows(g, place.batch, place.head, g.v, g.kv_row_stride);
    Bf16* const k = block.shared<Bf16>();
    Bf16* const v = block.shared<Bf16>(W::kTile);
    Bf16* const q = block.shared<Bf16>(2 * W::kTile);
    Bf16* const dout = block.shared<Bf16>(3 * W::kTile);
    float* const lse = block.shared<float>(4 * W::kTile);
    float* const sums = block.shared<float>(4 * W::kTile + kNumbers);
    PerThread<typename W::Scores> scores, dp;
    PerThread<typename W::Weights> weights;
    PerThread<typename W::Result> dk, dv;

    block.each_apart([&](int thread) {
      W::load(g, of_k, place.first, k, thread);
      W::load(g, of_v, place.first, v, thread);
      dk[thread] = {};
      dv[thread] = {};
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
          for (int i = thread; i < W::kRows; i += W::kBlockThreads) {
            const std::int64_t row = (place.batch * g.heads + head) * g.time + query + i;
            lse[i] = query + i < g.time ? g.lse[row] : 0;
            sums[i] = query + i < g.time ? of_rows[row] : 0;
          }
          scores[thread] = {};
          dp[thread] = {};
        });
        W::add_logits(block, k, q, scores);
        W::add_logits(block, v, dout, dp);
        block.each_apart([&](int thread) {
          TENON_UNROLL
          for (int n = 0; n < W::kLogits; ++n) {
            TENON_UNROLL
            for (int i = 0; i < 4; ++i) {
              const int column = W::column(thread, n, i);
              float& score = scores[thread].at[n].at[i];
              float& gradient = dp[thread].at[n].at[i];
              const bool visible =
                  all || attention_visible(g, place.batch, query + column, place.first + W::row(thread, i));
              score = visible ? std::exp(score * g.scale - lse[column]) : 0.0f;
              gradient = visible ? score * (gradient - sums[column]) * g.scale : 0.0f;
            }
          }
          weights[thread] = W::rounded(scores[thread]);
        });
        W::add_weighted(block, weights, dout, dv);
        block.each_apart([&](int thread) { weights[thread] = W::rounded(dp[thread]); });
        W::add_weighted(block, weights, q, dk);
        block.each([](int) {});
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
