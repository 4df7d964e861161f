// Shared by the operator families of this device: the kernel set in use, dispatch on the storage type, checks
// of views, block sizes of parallel loops, conversions and maps of arrays, and the makers of the families.
// Blocks depend on shapes alone, so results do not depend on the team.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/bf16.hpp>
#include <tenon/kernels/table.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/ops/copy.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/formula.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/spectral.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/ops/divergence.hpp>
#include <tenon/sdk/ops/interaction.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/sdk/ops/multiply.hpp>
#include <tenon/sdk/ops/signs.hpp>
#include <tenon/sdk/ops/ssd.hpp>
#include <tenon/sdk/ops/table_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

namespace tenon::cpu {

/// The kernels that open() chose. Tables are constants: copies of this struct stay valid.
struct Kernels {
  const kernels::KernelTable* table = nullptr;
  const kernels::DoubleTable* f64 = nullptr;
  bool onednn = false;  ///< products of f32 and bf16 go to oneDNN

  template <class S>
  const kernels::Ops<S>& ops() const {
    if constexpr (std::is_same_v<S, float>) {
      return table->f32;
    } else if constexpr (std::is_same_v<S, double>) {
      return f64->f64;
    } else {
      static_assert(std::is_same_v<S, kernels::Bf16>);
      return table->bf16;
    }
  }
};

using device_arguments::as_matrix;
using device_arguments::checked;
using device_arguments::checked_or_null;
using device_arguments::kDTypeOf;
using device_arguments::Matrix;
using device_arguments::refuse_dtype;
using device_arguments::refuse_view;
using device_arguments::with_arithmetic;
using device_arguments::with_storage;

/// Parameters, statistics and sums that go with activations of type S.
template <class S>
inline constexpr DType kArithDType = kDTypeOf<kernels::Arith<S>>;

/// Throws Error(kRun) that names the first index outside [lowest, bound).
void check_indices(const std::int32_t* indices, std::int64_t count, std::int32_t lowest, std::int64_t bound,
                   const char* where, const char* name);

inline constexpr std::size_t kCacheLine = 64;
/// Elements per block of flat loops: enough work to justify waking a thread.
inline constexpr std::int64_t kFlatBlock = 16384;
/// Elements of the buffers that loops keep on the stack.
inline constexpr std::int64_t kStackElements = 1024;
/// Columns per block of loops that own columns and walk all rows.
inline constexpr std::int64_t kColumnBlock = 64;

/// Rows per block of loops over rows of `columns` elements.
inline std::int64_t row_block(std::int64_t columns) {
  return std::max<std::int64_t>(1, kFlatBlock / std::max<std::int64_t>(1, columns));
}

// Conversion from an element's storage type to its arithmetic type, and back, rounded to nearest.

template <class S>
kernels::Arith<S> widen(S value) {
  if constexpr (std::is_same_v<S, kernels::Bf16>) {
    return kernels::to_float(value);
  } else {
    return value;
  }
}

template <class S>
S narrow(kernels::Arith<S> value) {
  if constexpr (std::is_same_v<S, kernels::Bf16>) {
    return kernels::to_bf16(value);
  } else {
    return value;
  }
}

// Conversion of flat arrays between storage types, shared by `convert` of the elementwise family and by
// products whose operands must be widened. Every conversion rounds once, to nearest even.

/// y[0..n) = x[0..n) for f32, f64, bf16 and f16 in any pairing, split among threads. x and y must not overlap
/// unless equal in place and type.
void convert_array(const Kernels& kernels, DType from, const void* x, DType to, void* y, std::int64_t n);

/// The same, without f16, for `rows` rows of `columns` elements; rows begin `x_stride` and `y_stride`
/// elements after one another.
void convert_rows(const Kernels& kernels, DType from, const void* x, std::int64_t x_stride, DType to, void* y,
                  std::int64_t y_stride, std::int64_t rows, std::int64_t columns);

/// The same on the calling thread only, typed.
template <class From, class To>
void convert_block(const Kernels& kernels, const From* x, To* y, std::int64_t n);

/// f64 to bf16 without the double rounding of a detour over f32.
kernels::Bf16 round_to_bf16(double value);

// The maps of `Epilogue` on arrays of one thread: used by activations and by the tail of products.

/// y = map(x), y may be x.
template <class S>
void map_forward(const Kernels& kernels, Epilogue map, const S* x, S* y, std::int64_t n);
/// dx = map'(x) dy, dx may be dy. S is float or double, or bf16.
template <class S>
void map_backward(const Kernels& kernels, Epilogue map, const S* x, const S* dy, S* dx, std::int64_t n);

// Makers of the operator families; each family is one source file.

std::unique_ptr<Blas> make_blas(const Kernels& kernels);
std::unique_ptr<NeuralOps> make_neural_ops(const Kernels& kernels);
std::unique_ptr<Attention> make_attention(const Kernels& kernels);
std::unique_ptr<EmbeddingOps> make_embedding_ops(const Kernels& kernels);
std::unique_ptr<Elementwise> make_elementwise(const Kernels& kernels);
std::unique_ptr<ReduceOps> make_reduce_ops(const Kernels& kernels);
std::unique_ptr<FormulaOps> make_formula_ops(const Kernels& kernels);
std::unique_ptr<WindowOps> make_window_ops(const Kernels& kernels);
std::unique_ptr<Convolutions> make_convolutions(const Kernels& kernels);
std::unique_ptr<NormalisationOps> make_normalisation_ops(const Kernels& kernels);
std::unique_ptr<PartNormOps> make_part_norm_ops();
std::unique_ptr<InteractionOps> make_interaction_ops(const Kernels& kernels);
std::unique_ptr<DivergenceOps> make_divergence_ops(const Kernels& kernels);
std::unique_ptr<StateDistanceOps> make_state_distance_ops();
std::unique_ptr<MultiplyOps> make_multiply_ops();
std::unique_ptr<SparseAxisOps> make_sparse_axis_ops();
std::unique_ptr<SignOps> make_sign_ops();
std::unique_ptr<CausalConvs> make_causal_convs(const Kernels& kernels);
std::unique_ptr<Ssd> make_ssd(const Kernels& kernels);
std::unique_ptr<GatedNorms> make_gated_norms(const Kernels& kernels);
std::unique_ptr<TableRowOps> make_table_row_ops();
std::unique_ptr<QuantOps> make_quant_ops(const Kernels& kernels);
std::unique_ptr<MorOps> make_mor_ops(const Kernels& kernels);
std::unique_ptr<Fft> make_fft(const Kernels& kernels);
std::unique_ptr<BatchedComplexGemms> make_batched_complex_gemms(const Kernels& kernels);

}  // namespace tenon::cpu
