// Shared by the operator families of this device: dispatch on the storage type and checks of views, as on the
// other devices, refusals, and the makers of the families.
#pragma once

#include "device_common/arguments.hpp"
#include "queue.hpp"

#include <tenon/kernels/cuda/maps.hpp>
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
#include <tenon/sdk/ops/background.hpp>
#include <tenon/sdk/ops/divergence.hpp>
#include <tenon/sdk/ops/interaction.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/sdk/ops/multiply.hpp>
#include <tenon/sdk/ops/signs.hpp>
#include <tenon/sdk/ops/ssd.hpp>
#include <tenon/sdk/ops/table_rows.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace tenon::cuda {

using kernels::Arith;
using kernels::Bf16;

using device_arguments::as_matrix;
using device_arguments::checked;
using device_arguments::checked_or_null;
using device_arguments::kDTypeOf;
using device_arguments::Matrix;
using device_arguments::refuse_dtype;
using device_arguments::refuse_view;
using device_arguments::with_arithmetic;
using device_arguments::with_storage;

/// `why`: the library's own text, or "".
[[noreturn]] void refuse_memory(std::size_t bytes, std::size_t free, std::size_t total,
                                const std::string& why);

/// Throws Error(kRun) that names the first of `count` indices outside [lowest, bound). Waits for the device.
void check_indices(Queue& queue, const std::int32_t* indices, std::int64_t count, std::int32_t lowest,
                   std::int64_t bound, const char* where, const char* name);

/// Throw Error(kConfig) with the reason for a combination that is not defined, in the words of the other
/// devices.
void check_quantize_spec(const QuantizeSpec& spec);
void check_mor_spec(const MorSpec& spec);

// Translates the contract's pointwise maps to the kernels' names.

static_assert(static_cast<int>(kernels::cuda::Map::kNone) == static_cast<int>(Epilogue::kNone) &&
              static_cast<int>(kernels::cuda::Map::kGeluTanh) == static_cast<int>(Epilogue::kGeluTanh) &&
              static_cast<int>(kernels::cuda::Map::kGeluExact) == static_cast<int>(Epilogue::kGeluExact) &&
              static_cast<int>(kernels::cuda::Map::kRelu) == static_cast<int>(Epilogue::kRelu) &&
              static_cast<int>(kernels::cuda::Map::kSilu) == static_cast<int>(Epilogue::kSilu) &&
              static_cast<int>(kernels::cuda::Map::kSquaredRelu) == static_cast<int>(Epilogue::kSquaredRelu));

constexpr kernels::cuda::Map map_of(Epilogue map) {
  return static_cast<kernels::cuda::Map>(map);
}

// Makers of the operator families; each family is one source file. A family keeps the queue, which outlives
// it.

std::unique_ptr<Blas> make_blas(Queue& queue);
/// Names the implementation of products, for a Blas from make_blas; opens nothing.
std::string describe_blas(const Blas& blas);
std::unique_ptr<NeuralOps> make_neural_ops(Queue& queue);
std::unique_ptr<Attention> make_attention(Queue& queue);
std::unique_ptr<EmbeddingOps> make_embedding_ops(Queue& queue);
std::unique_ptr<Elementwise> make_elementwise(Queue& queue);
std::unique_ptr<ReduceOps> make_reduce_ops(Queue& queue);
std::unique_ptr<FormulaOps> make_formula_ops(Queue& queue);
std::unique_ptr<WindowOps> make_window_ops(Queue& queue);
std::unique_ptr<Convolutions> make_convolutions(Queue& queue);
/// Names the library that computes them, or why windows do; "" while no layer asked.
std::string describe_convolutions(const Convolutions& convolutions);
std::unique_ptr<NormalisationOps> make_normalisation_ops(Queue& queue);
std::unique_ptr<PartNormOps> make_part_norm_ops(Queue& queue);
std::unique_ptr<InteractionOps> make_interaction_ops(Queue& queue);
std::unique_ptr<DivergenceOps> make_divergence_ops(Queue& queue);
std::unique_ptr<StateDistanceOps> make_state_distance_ops(Queue& queue);
std::unique_ptr<MultiplyOps> make_multiply_ops(Queue& queue);
std::unique_ptr<StridedCopyOps> make_strided_copy_ops(Queue& queue);
std::unique_ptr<SparseAxisOps> make_sparse_axis_ops(Queue& queue);
std::unique_ptr<SignOps> make_sign_ops(Queue& queue);
std::unique_ptr<CausalConvs> make_causal_convs(Queue& queue);
std::unique_ptr<Ssd> make_ssd(Queue& queue);
std::unique_ptr<GatedNorms> make_gated_norms(Queue& queue);
std::unique_ptr<TableRowOps> make_table_row_ops(Queue& queue);
std::unique_ptr<QuantOps> make_quant_ops(Queue& queue);
std::unique_ptr<MorOps> make_mor_ops(Queue& queue);
std::unique_ptr<ScaledProducts> make_scaled_products(Queue& queue);
std::unique_ptr<Fft> make_fft(Queue& queue);
/// Names the implementation of long transforms; "" while none was prepared.
std::string describe_fft(const Fft& fft);
std::unique_ptr<BatchedComplexGemms> make_batched_complex_gemms(Queue& queue);
/// Has a queue of its own, of the same device.
std::unique_ptr<BackgroundWork> make_background(const QueueSpec& spec);

}  // namespace tenon::cuda
