// Products of tiles in a block's shared memory: C (+)= op(A) op(B), the inner step of attention.
//
// f32 and f64: every element is one chain over the depth, of products and sums, on any machine.
// bf16: products are exact in f32, and sums are kept in f32. On the host they are one chain as well; on a
// device a warp's tensor cores add 16 products and the sum so far in an order of their own, and truncate
// where the host rounds. Either way one step of 16 is off by at most 17 * 2^-23 (|sum so far| + sum of
// |products|), so host and device differ by at most twice that for each step. Results of one machine are the
// same bits each time.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <mma.h>
#endif

namespace tenon::kernels::cuda {

/// All extents are multiples of it.
inline constexpr int kTileStep = 16;

enum class Stored : std::uint8_t { kPlain, kTransposed };

/// A is [rows, depth], or stored [depth, rows]; B is [depth, columns], or stored [columns, depth]. Strides
/// count elements from one stored row to the next. bf16 needs all three at multiples of 32 bytes, strides of
/// A and B at multiples of 8 and that of C at multiples of 4.
template <class S>
struct TileProduct {
  const S* a = nullptr;
  int a_stride = 0;
  const S* b = nullptr;
  int b_stride = 0;
  Arith<S>* c = nullptr;
  int c_stride = 0;
  int rows = 0, columns = 0, depth = 0;
  bool add = false;  ///< to what is in C
};

#if defined(__CUDA_ARCH__)

/// Rows [row, row + 16) of C and one or two times 16 columns from `column` on, by one warp.
template <Stored StoredA, Stored StoredB, int Count>
__device__ void multiply_by_warp(const TileProduct<Bf16>& p, int row, int column) {
  namespace wmma = nvcuda::wmma;
  using LayoutA = std::conditional_t<StoredA == Stored::kPlain, wmma::row_major, wmma::col_major>;
  using LayoutB = std::conditional_t<StoredB == Stored::kPlain, wmma::row_major, wmma::col_major>;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, LayoutA> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, LayoutB> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[Count];
  float* const c = p.c + row * p.c_stride + column;
  TENON_UNROLL
  for (int i = 0; i < Count; ++i) {
    if (p.add) {
      wmma::load_matrix_sync(sums[i], c + i * kTileStep, p.c_stride, wmma::mem_row_major);
    } else {
      wmma::fill_fragment(sums[i], 0.0f);
    }
  }
  const auto* const a_tile = reinterpret_cast<const __nv_bfloat16*>(p.a);
  const auto* const b_tile = reinterpret_cast<const __nv_bfloat16*>(p.b);
  for (int l = 0; l < p.depth; l += kTileStep) {
    wmma::load_matrix_sync(
        a, a_tile + (StoredA == Stored::kPlain ? row * p.a_stride + l : l * p.a_stride + row), p.a_stride);
    TENON_UNROLL
    for (int i = 0; i < Count; ++i) {
      const int j = column + i * kTileStep;
      wmma::load_matrix_sync(
          b, b_tile + (StoredB == Stored::kPlain ? l * p.b_stride + j : j * p.b_stride + l), p.b_stride);
      wmma::mma_sync(sums[i], a, b, sums[i]);
    }
  }
  TENON_UNROLL
  for (int i = 0; i < Count; ++i)
    wmma::store_matrix_sync(c + i * kTileStep, sums[i], p.c_stride, wmma::mem_row_major);
}

#else

/// The same by loops.
template <Stored StoredA, Stored StoredB, int Count>
void multiply_by_warp(const TileProduct<Bf16>& p, int row, int column) {
  for (int i = row; i < row + kTileStep; ++i)
    for (int j = column; j < column + Count * kTileStep; ++j) {
      float& c = p.c[i * p.c_stride + j];
      float sum = p.add ? c : 0.0f;
      for (int l = 0; l < p.depth; ++l) {
        const Bf16 a = p.a[StoredA == Stored::kPlain ? i * p.a_stride + l : l * p.a_stride + i];
        const Bf16 b = p.b[StoredB == Stored::kPlain ? l * p.b_stride + j : j * p.b_stride + l];
        sum = sum + get(a) * get(b);
      }
      c = sum;
    }
}

#endif

/// Shared among warps, whose threads work together on a device; on the host one thread of each does the work.
template <Stored StoredA, Stored StoredB>
TENON_BOTH void multiply_tiles(const Block& block, const TileProduct<Bf16>& p) {
  constexpr int kWarp = 32, kPair = 2 * kTileStep;
  block.each([&](int thread) {
#if !defined(__CUDA_ARCH__)
    if (thread % kWarp != 0) return;
#endif
    const int across = (p.columns + kPair - 1) / kPair;
    for (int unit = thread / kWarp; unit < p.rows / kTileStep * across; unit += block.threads() / kWarp) {
      const int row = unit / across * kTileStep, column = unit % across * kPair;
      if (column + kTileStep < p.columns) {
        multiply_by_warp<StoredA, StoredB, 2>(p, row, column);
      } else {
        multiply_by_warp<StoredA, StoredB, 1>(p, row, column);
      }
    }
  });
}

/// Shared among threads, each of which computes four neighbouring rows and four columns a quarter of C apart,
/// so that neighbouring threads read neighbouring columns.
template <Stored StoredA, Stored StoredB, class T>
TENON_BOTH void multiply_tiles(const Block& block, const TileProduct<T>& p) {
  constexpr int kSide = 4;
  block.each([&](int thread) {
    const int across = p.columns / kSide;
    for (int unit = thread; unit < p.rows / kSide * across; unit += block.threads()) {
      const int row = unit / across * kSide, column = unit % across;
      T sums[kSide][kSide];
      TENON_UNROLL
      for (int i = 0; i < kSide; ++i) {
        TENON_UNROLL
        for (int j = 0; j < kSide; ++j)
          sums[i][j] = p.add ? p.c[(row + i) * p.c_stride + column + j * across] : T{0};
      }
      for (int l = 0; l < p.depth; ++l) {
        T a[kSide], b[kSide];
        TENON_UNROLL
        for (int i = 0; i < kSide; ++i) {
          const int r = row + i, c = column + i * across;
          a[i] = p.a[StoredA == Stored::kPlain ? r * p.a_stride + l : l * p.a_stride + r];
          b[i] = p.b[StoredB == Stored::kPlain ? l * p.b_stride + c : c * p.b_stride + l];
        }
        TENON_UNROLL
        for (int i = 0; i < kSide; ++i) {
          TENON_UNROLL
          for (int j = 0; j < kSide; ++j) sums[i][j] = sums[i][j] + a[i] * b[j];
        }
      }
      TENON_UNROLL
      for (int i = 0; i < kSide; ++i) {
        TENON_UNROLL
        for (int j = 0; j < kSide; ++j) p.c[(row + i) * p.c_stride + column + j * across] = sums[i][j];
      }
    }
  });
}

}  // namespace tenon::kernels::cuda
