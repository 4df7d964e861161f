// The ways in which this device computes a product, from which blas.cpp chooses: oneDNN (gemm_onednn.hpp),
// the kernels of this tree, or either of them after a conversion of operands. All check their views and
// allocate nothing in run().
#pragma once

#include "common.hpp"

#include <tenon/ops/dense.hpp>

#include <functional>
#include <memory>

namespace tenon::cpu {

/// Elements of each operand over the whole batch.
struct GemmExtents {
  std::int64_t a = 0, b = 0, c = 0;
  explicit GemmExtents(const GemmSpec& spec)
      : a(spec.batch * spec.m * spec.k), b(spec.batch * spec.k * spec.n), c(spec.batch * spec.m * spec.n) {}
};

/// Refuses views that do not match the specification; checks bias only where the specification has one.
void check_gemm(const GemmSpec& spec, DType bias_dtype, const TensorView& a, const TensorView& b,
                const TensorView& c, const TensorView& bias, const TensorView& scratch,
                std::size_t scratch_bytes);

/// Kernels of this tree: operands of one dtype; C of theirs, or f32 or bf16 where they are f32 or bf16. Each
/// element is one chain over k, so neither threads nor blocks change a bit.
std::unique_ptr<Gemm> make_kernel_gemm(const Kernels& kernels, const GemmSpec& spec);

using MakeGemm = std::function<std::unique_ptr<Gemm>(const GemmSpec&)>;

/// Copies operands into the dtypes of `inner`, runs inner products that `make` prepares, and rounds C back.
/// Scratch holds the copies: about 32 MiB at most beside the smaller operand.
std::unique_ptr<Gemm> make_converted_gemm(const Kernels& kernels, const GemmSpec& spec, const GemmSpec& inner,
                                          const MakeGemm& make);

}  // namespace tenon::cpu
