// The ways in which this device computes a product, from which blas.cpp chooses: oneDNN, the kernels of this
// tree, or either of them after a conversion of operands. All check their views and allocate nothing in
// run().
#pragma once

#include "common.hpp"
#include "device_common/gemms.hpp"

#include <tenon/ops/dense.hpp>

#include <functional>
#include <memory>
#include <string>

namespace tenon::cpu {

/// Kernels of this tree: operands of one dtype; C of theirs, or f32 or bf16 where they are f32 or bf16. Each
/// element is one chain over k, so neither threads nor blocks change a bit.
std::unique_ptr<Gemm> make_kernel_gemm(const Kernels& kernels, const GemmSpec& spec);

using MakeGemm = std::function<std::unique_ptr<Gemm>(const GemmSpec&)>;

/// Copies operands into the dtypes of `inner`, runs inner products that `make` prepares, and rounds C back.
/// Scratch holds the copies: about 32 MiB at most beside the smaller operand.
std::unique_ptr<Gemm> make_converted_gemm(const Kernels& kernels, const GemmSpec& spec, const GemmSpec& inner,
                                          const MakeGemm& make);

// Products of one term: every row of C is B's row times one element of A. They only write; a library's
// product takes several times as long (a bias per channel is such a product).

/// f32 throughout, rows long enough, without bias, alpha, map or accumulation.
bool is_outer_product(const GemmSpec& spec);

std::unique_ptr<Gemm> make_outer_product(const Kernels& kernels, const GemmSpec& spec);

// Products by oneDNN's matmul primitive. Must not be run inside parallel_for: oneDNN would silently use one
// thread there.

/// Version of the library that is loaded, e.g. "2.6.3".
std::string onednn_version();

/// The library on this processor; shared by the plans of one device.
class Onednn {
 public:
  Onednn();
  ~Onednn();
  Onednn(const Onednn&) = delete;
  Onednn& operator=(const Onednn&) = delete;

  /// True if the processor has units for bf16 products that are faster than those for f32.
  bool native_bf16() const { return native_bf16_; }
  /// True if a row of C has the same bits however many rows are computed with it. With AVX-512 it has; the
  /// products for other processors choose their order of sums by the number of rows.
  bool rows_apart() const { return rows_apart_; }
  /// A plan for f32 or bf16 operands of one dtype, C f32 or bf16. Null where the library has only its plain
  /// loops.
  std::unique_ptr<Gemm> gemm(const GemmSpec& spec) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  bool native_bf16_ = false, rows_apart_ = false;
};

}  // namespace tenon::cpu
