// Norms of gated values: out[r, c] = weight[c] v / sqrt(mean of v^2 over c's group + eps), v = y silu(z).
// Groups are neighbouring columns; z are runs of columns of a wider row. Rows are independent.
#pragma once

#include <tenon/kernels/causal_conv.hpp>

namespace tenon::kernels {

template <class S>
struct GatedNormArgs {
  std::int64_t rows = 0, groups = 1, group_width = 0;
  std::int64_t columns = 0;         ///< of a row of projected
  const JoinedRun* runs = nullptr;  ///< of z, in ascending `to`; none belongs to two groups
  Arith<S> eps = 0;
  const S* y = nullptr;
  const S* projected = nullptr;
  const Arith<S>* weight = nullptr;
  S* out = nullptr;  ///< may be y
  // Backward.
  const S* dout = nullptr;
  S* dy = nullptr;           ///< may be dout
  S* dprojected = nullptr;   ///< the runs alone are written
  std::int64_t block = 1;    ///< rows of a block
  Arith<S>* sums = nullptr;  ///< [blocks, groups group_width]: gradients of weight, to be added up
};

template <class S>
constexpr std::int64_t gated_norm_blocks(const GatedNormArgs<S>& args) {
  return (args.rows + args.block - 1) / args.block;
}

template <class S>
struct GatedNormOps {
  void (*forward)(const GatedNormArgs<S>& args, std::int64_t row_begin, std::int64_t row_end);
  void (*backward)(const GatedNormArgs<S>& args, std::int64_t block_begin, std::int64_t block_end);
};

}  // namespace tenon::kernels
