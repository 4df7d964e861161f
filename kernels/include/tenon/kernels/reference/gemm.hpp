// Reference matrix product: the definition in gemm.hpp, written as three loops.
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

}  // namespace tenon::kernels::reference
