// Products in the registers of a warp, as tensor cores compute them: C [16, 8] += A [16, 16] B [16, 8] in
// bf16 with sums in f32. What each of the 32 threads holds is that of mma.m16n8k16: with g = lane / 4 and t =
// lane % 4,
//
//   A   word 0: (g, 2t) (g, 2t + 1), word 1: row g + 8, word 2: depth + 8, word 3: both
//   B   word 0: (depth 2t, column g) (depth 2t + 1, column g), word 1: depth + 8
//   C   0, 1: (g, 2t) (g, 2t + 1), 2, 3: row g + 8
//
// So sums of one product, rounded to bf16, are A of the next one without leaving their threads. On the host
// each thread of the launcher has the same registers, and a product collects those of its warp: indices are
// tested there. A device's cores add 16 products and the sum so far in an order of their own
// (tile_products.hpp has the bound).
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

/// A thread's part of A, or of B of two products side by side: words 0 and 1 of the first, 2 and 3 of the
/// second.
struct WarpOperand {
  std::uint32_t word[4];
};
/// A thread's part of C.
struct WarpSums {
  float at[4];
};

TENON_BOTH inline std::uint32_t packed_bf16(Bf16 low, Bf16 high) {
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}

/// Sums of two products side by side, rounded, as A of the next one.
TENON_BOTH inline WarpOperand as_operand(const WarpSums& left, const WarpSums& right) {
  const auto pair = [](const WarpSums& sums, int i) {
    return packed_bf16(to_bf16(sums.at[i]), to_bf16(sums.at[i + 1]));
  };
  return {{pair(left, 0), pair(left, 2), pair(right, 0), pair(right, 2)}};
}

/// How 16 x 16 elements of a stored tile become words.
enum class WarpLoad {
  kRows,        ///< A, whose rows are stored
  kColumns,     ///< B of two products, whose columns are stored one after the other
  kTransposed,  ///< B of two products, whose rows are stored
};

/// The thread's words of the elements from (row, column) of `tile` on. Rows begin at multiples of 16 bytes.
/// All threads of a warp call it together.
template <WarpLoad kHow>
TENON_BOTH WarpOperand load_operand(const Bf16* tile, int stride, int row, int column, int thread) {
  constexpr bool kDownFirst = kHow != WarpLoad::kColumns;
  const int lane = thread % kWarpThreads;
  WarpOperand result;
#if defined(__CUDA_ARCH__)
  // Eight threads name the rows of one of four squares of 8 x 8.
  const int square = lane / 8, down = kDownFirst ? square % 2 : square / 2,
            right = kDownFirst ? square / 2 : square % 2;
  const auto at = static_cast<unsigned>(
      __cvta_generic_to_shared(tile + (row + down * 8 + lane % 8) * stride + column + right * 8));
  if constexpr (kHow == WarpLoad::kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(result.word[0]), "=r"(result.word[1]), "=r"(result.word[2]), "=r"(result.word[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(result.word[0]), "=r"(result.word[1]), "=r"(result.word[2]), "=r"(result.word[3])
                 : "r"(at)
                 : "memory");
  }
#else
  const int g = lane / 4, t = lane % 4;
  for (int square = 0; square < 4; ++square) {
    const int down = kDownFirst ? square % 2 : square / 2, right = kDownFirst ? square / 2 : square % 2;
    const Bf16* const from = tile + (row + down * 8) * stride + column + right * 8;
    result.word[square] = kHow == WarpLoad::kTransposed
                              ? packed_bf16(from[2 * t * stride + g], from[(2 * t + 1) * stride + g])
                              : packed_bf16(from[g * stride + 2 * t], from[g * stride + 2 * t + 1]);
  }
#endif
  return result;
}

/// One product of each warp, in a thread's registers.
struct WarpProduct {
  WarpSums* sums;
  const WarpOperand* a;
  std::uint32_t b[2];
};

/// of(thread) returns the product of the thread's warp in its registers. No phase: threads of a warp work
/// together.
template <class F>
TENON_BOTH void multiply_warps([[maybe_unused]] const Block& block, F of) {
#if defined(__CUDA_ARCH__)
  const WarpProduct p = of(static_cast<int>(threadIdx.x));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(p.sums->at[0]), "+f"(p.sums->at[1]), "+f"(p.sums->at[2]), "+f"(p.sums->at[3])
      : "r"(p.a->word[0]), "r"(p.a->word[1]), "r"(p.a->word[2]), "r"(p.a->word[3]), "r"(p.b[0]), "r"(p.b[1]));
#else
  const auto half = [](std::uint32_t word, int which) {
    return to_float(Bf16{static_cast<std::uint16_t>(word >> (16 * which))});
  };
  for (int first = 0; first < block.threads(); first += kWarpThreads) {
    float a[16][16], b[16][8];
    WarpSums* sums[kWarpThreads];
    for (int lane = 0; lane < kWarpThreads; ++lane) {
      const WarpProduct p = of(first + lane);
      const int g = lane / 4, t = lane % 4;
      sums[lane] = p.sums;
      for (int which = 0; which < 2; ++which) {
        for (int w = 0; w < 4; ++w) a[g + w % 2 * 8][w / 2 * 8 + 2 * t + which] = half(p.a->word[w], which);
        for (int w = 0; w < 2; ++w) b[w * 8 + 2 * t + which][g] = half(p.b[w], which);
      }
    }
    for (int lane = 0; lane < kWarpThreads; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float& sum = sums[lane]->at[i];
        for (int l = 0; l < 16; ++l) sum = sum + a[row][l] * b[l][column];
      }
  }
#endif
}

}  // namespace tenon::kernels::cuda
