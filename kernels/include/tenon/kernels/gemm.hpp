// Matrix products, row-major (and, below, products of complex matrices per mode of a spectrum): C = alpha
// op(A) op(B) + beta C, possibly batched. Order of arithmetic, for every kernel set: each element of C is one
// chain over k = 0, 1, ... in Arith<S>, started at zero, then scaled by alpha, then added to beta C, then
// rounded to the type of C. So the result does not depend on tile sizes or on how rows and columns are shared
// among threads. `avx2` and `avx512` use one fused multiply-add per link of the chain, `reference` and
// `portable` a product and a sum.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// op(A) is [m, k], op(B) is [k, n], C is [m, n]; a transposed operand is stored [k, m] or [n, k].
/// Leading dimensions and strides count elements. With beta = 0, C is not read.
template <class S, class C>
struct GemmArgs {
  std::int64_t m = 0, n = 0, k = 0;
  const S* a = nullptr;
  std::int64_t lda = 0;
  bool transpose_a = false;
  const S* b = nullptr;
  std::int64_t ldb = 0;
  bool transpose_b = false;
  C* c = nullptr;
  std::int64_t ldc = 0;
  Arith<S> alpha = 1;
  Arith<S> beta = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  ///< from one product of the batch to the next
};

template <class S>
struct GemmOps {
  /// C is stored like the operands.
  void (*gemm)(const GemmArgs<S, S>& args);
  /// C is stored in the arithmetic type (weight gradients of bfloat16 operands).
  void (*gemm_wide)(const GemmArgs<S, Arith<S>>& args);
};

/// The part of `args` that computes rows [begin, end) of each C: the share of one thread.
template <class S, class C>
GemmArgs<S, C> gemm_rows(GemmArgs<S, C> args, std::int64_t begin, std::int64_t end) {
  args.a += args.transpose_a ? begin : begin * args.lda;
  args.c += begin * args.ldc;
  args.m = end - begin;
  return args;
}

/// The part of `args` that computes columns [begin, end) of each C.
template <class S, class C>
GemmArgs<S, C> gemm_columns(GemmArgs<S, C> args, std::int64_t begin, std::int64_t end) {
  args.b += args.transpose_b ? begin * args.ldb : begin;
  args.c += begin;
  args.n = end - begin;
  return args;
}

// Products of complex matrices, one per mode of a spectrum (Li et al. 2021, the kernel of a Fourier layer):
// y[b, o, m] = sum over i of x[b, i, m] w[i, o, m]. Modes are contiguous, so the vector lanes hold modes. A
// sum adds its terms in ascending order, each being two products for the real and for the imaginary part:
// equal bits whichever modes share a call. Callers may split the groups of modes in any way.

/// Modes of one group.
inline constexpr std::int64_t kModeGroup = kLanes;

/// x, dx: [batch, in, modes], y, dy: [batch, out, modes], w, dw: [in, out, modes]; two reals each.
template <class T>
struct BatchedComplexGemmArgs {
  std::int64_t batch = 0, in = 0, out = 0, modes = 0;
  const T* x = nullptr;
  const T* w = nullptr;
  T* y = nullptr;
  const T* dy = nullptr;
  T* dx = nullptr;
  T* dw = nullptr;
  bool accumulate_dw = false;
  T* workspace = nullptr;  ///< of this caller alone
};

template <class T>
struct BatchedComplexGemmOps {
  /// Elements of a workspace.
  std::int64_t (*workspace)(const BatchedComplexGemmArgs<T>&);
  void (*forward)(const BatchedComplexGemmArgs<T>&, std::int64_t group_begin, std::int64_t group_end);
  /// dx[b, i, m] = sum over o of dy[b, o, m] conj(w[i, o, m])
  void (*backward_input)(const BatchedComplexGemmArgs<T>&, std::int64_t group_begin, std::int64_t group_end);
  /// dw[i, o, m] (+)= sum over b of conj(x[b, i, m]) dy[b, o, m]
  void (*backward_weight)(const BatchedComplexGemmArgs<T>&, std::int64_t group_begin, std::int64_t group_end);
};

}  // namespace tenon::kernels
