// Shared by the bodies of attention in bf16 that keep logits, probabilities and results in registers
// (attention.hpp, attention_backward.hpp), for heads of up to kWidth columns. A warp has 16 rows of a block's
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

  /// sums = (16 rows of `own` by warp) (the rows of `other`)', over the head's columns.
  TENON_BOTH static void find_logits(const Block& block, const Bf16* own, const Bf16* other,
                                     PerThread<Scores>& sums) {
    PerThread<WarpOperand> a, b;
    block.each_apart([&](int thread) { sums[thread] = {}; });
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
        multiply_pair(
            block, [&](int thread) { return &a[thread]; }, b,
            [&](int thread, int i) { return &sums[thread].at[n + i]; });
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
        multiply_pair(
            block, [&](int thread) { return &weights[thread].at[l]; }, b,
            [&](int thread, int i) { return &result[thread].at[n + i]; });
      }
    }
  }

  /// Calls f(n, i) for element i of each of a thread's kCount sums n.
  template <int kCount, class F>
  TENON_BOTH static void for_each_sum(F f) {
    TENON_UNROLL
    for (int n = 0; n < kCount; ++n) {
      TENON_UNROLL
      for (int i = 0; i < 4; ++i) f(n, i);
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
      for_each_sum<kResults>([&](int n, int i) {
        tile[row(thread, i) * kStride + column(thread, n, i)] =
            to_bf16(value(thread, i, result[thread].at[n].at[i]));
      });
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
  /// a(thread) and sums(thread, i) are the thread's registers of products i = 0 and 1, which share A.
  template <class A, class Sums>
  TENON_BOTH static void multiply_pair(const Block& block, A a, PerThread<WarpOperand>& b, Sums sums) {
    TENON_UNROLL
    for (int i = 0; i < 2; ++i)
      multiply_warps(block, [&](int thread) {
        return WarpProduct{sums(thread, i), a(thread), {b[thread].word[2 * i], b[thread].word[2 * i + 1]}};
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

}  // namespace tenon::kernels::cuda
