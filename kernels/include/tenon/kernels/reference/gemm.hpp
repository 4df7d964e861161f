// Reference matrix products: the definitions in gemm.hpp, written as loops.
#pragma once

#include <tenon/kernels/gemm.hpp>
#include <tenon/kernels/reference/scalar.hpp>

namespace tenon::kernels::reference {

template <class S, class C>
void gemm(const GemmArgs<S, C>& args) {
  for (std::int64_t product = 0; product < args.batch; ++product) {
    const S* a = args.a + product * args.stride_a;
    const S* b = args.b + product * args.stride_b;
    C* c = args.c + product * args.stride_c;
    for (std::int64_t i = 0; i < args.m; ++i)
      for (std::int64_t j = 0; j < args.n; ++j) {
        Arith<S> sum = 0;
        for (std::int64_t k = 0; k < args.k; ++k)
          sum += get(args.transpose_a ? a[k * args.lda + i] : a[i * args.lda + k]) *
                 get(args.transpose_b ? b[j * args.ldb + k] : b[k * args.ldb + j]);
        C& out = c[i * args.ldc + j];
        const Arith<S> scaled = args.alpha * sum;
        out = put<C>(args.beta == 0 ? scaled : scaled + args.beta * get(out));
      }
  }
}

// Reference products per mode: the sums of gemm.hpp, one element after the other.

/// c[p, q, m] (+)= sum over r of a(p, r, m) b(r, q, m), where a and b return the place of an element;
/// conjugated on request.
template <class T, class A, class B, class C>
void mode_sums(const BatchedComplexGemmArgs<T>& args, std::int64_t group_begin, std::int64_t group_end,
               std::int64_t rows, std::int64_t terms, std::int64_t columns, A a, T sign_a, B b, T sign_b, C c,
               bool accumulate) {
  const std::int64_t last = group_end * kModeGroup < args.modes ? group_end * kModeGroup : args.modes;
  for (std::int64_t p = 0; p < rows; ++p)
    for (std::int64_t q = 0; q < columns; ++q)
      for (std::int64_t m = group_begin * kModeGroup; m < last; ++m) {
        T re = 0, im = 0;
        for (std::int64_t r = 0; r < terms; ++r) {
          const T* left = a(p, r) + 2 * m;
          const T* right = b(r, q) + 2 * m;
          const T left_im = sign_a * left[1], right_im = sign_b * right[1];
          re += left[0] * right[0];
          re -= left_im * right_im;
          im += left[0] * right_im;
          im += left_im * right[0];
        }
        T* out = c(p, q) + 2 * m;
        out[0] = accumulate ? out[0] + re : re;
        out[1] = accumulate ? out[1] + im : im;
      }
}

template <class T>
std::int64_t batched_complex_gemm_workspace(const BatchedComplexGemmArgs<T>&) {
  return 0;
}

template <class T>
void batched_complex_gemm_forward(const BatchedComplexGemmArgs<T>& args, std::int64_t group_begin,
                                  std::int64_t group_end) {
  const auto x = [&](std::int64_t b, std::int64_t i) { return args.x + 2 * args.modes * (b * args.in + i); };
  const auto w = [&](std::int64_t i, std::int64_t o) { return args.w + 2 * args.modes * (i * args.out + o); };
  const auto y = [&](std::int64_t b, std::int64_t o) { return args.y + 2 * args.modes * (b * args.out + o); };
  mode_sums(args, group_begin, group_end, args.batch, args.in, args.out, x, T{1}, w, T{1}, y, false);
}

template <class T>
void batched_complex_gemm_backward_input(const BatchedComplexGemmArgs<T>& args, std::int64_t group_begin,
                                         std::int64_t group_end) {
  const auto dy = [&](std::int64_t b, std::int64_t o) {
    return args.dy + 2 * args.modes * (b * args.out + o);
  };
  const auto w = [&](std::int64_t o, std::int64_t i) { return args.w + 2 * args.modes * (i * args.out + o); };
  const auto dx = [&](std::int64_t b, std::int64_t i) {
    return args.dx + 2 * args.modes * (b * args.in + i);
  };
  mode_sums(args, group_begin, group_end, args.batch, args.out, args.in, dy, T{1}, w, T{-1}, dx, false);
}

template <class T>
void batched_complex_gemm_backward_weight(const BatchedComplexGemmArgs<T>& args, std::int64_t group_begin,
                                          std::int64_t group_end) {
  const auto x = [&](std::int64_t i, std::int64_t b) { return args.x + 2 * args.modes * (b * args.in + i); };
  const auto dy = [&](std::int64_t b, std::int64_t o) {
    return args.dy + 2 * args.modes * (b * args.out + o);
  };
  const auto dw = [&](std::int64_t i, std::int64_t o) {
    return args.dw + 2 * args.modes * (i * args.out + o);
  };
  mode_sums(args, group_begin, group_end, args.in, args.batch, args.out, x, T{-1}, dy, T{1}, dw,
            args.accumulate_dw);
}

}  // namespace tenon::kernels::reference
