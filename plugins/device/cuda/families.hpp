// Makers of the operator families; each family is one source file. A family keeps the queue, which outlives
// it.
#pragma once

#include "queue.hpp"

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
#include <tenon/sdk/ops/interaction.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/sdk/ops/signs.hpp>
#include <tenon/sdk/ops/update.hpp>

#include <memory>
#include <string>

namespace tenon::cuda {

std::unique_ptr<Blas> make_blas(Queue& queue);
/// Names the implementation of products, for a Blas from make_blas; opens nothing.
std::string describe_blas(const Blas& blas);
std::unique_ptr<NeuralOps> make_neural_ops(Queue& queue);
std::unique_ptr<Attention> make_attention(Queue& queue);
std::unique_ptr<EmbeddingOps> make_embedding_ops(Queue& queue);
std::unique_ptr<Elementwise> make_elementwise(Queue& queue);
std::unique_ptr<ReduceOps> make_reduce_ops(Queue& queue);
std::unique_ptr<UpdateOps> make_update_ops(Queue& queue);
std::unique_ptr<FormulaOps> make_formula_ops(Queue& queue);
std::unique_ptr<WindowOps> make_window_ops(Queue& queue);
std::unique_ptr<Convolutions> make_convolutions(Queue& queue);
/// Names the library that computes them, or why windows do; "" while no layer asked.
std::string describe_convolutions(const Convolutions& convolutions);
std::unique_ptr<NormalisationOps> make_normalisation_ops(Queue& queue);
std::unique_ptr<PartNormOps> make_part_norm_ops(Queue& queue);
std::unique_ptr<InteractionOps> make_interaction_ops(Queue& queue);
std::unique_ptr<BoxOps> make_box_ops(Queue& queue);
std::unique_ptr<LineSums> make_line_sums(Queue& queue);
std::unique_ptr<SignOps> make_sign_ops(Queue& queue);
std::unique_ptr<QuantOps> make_quant_ops(Queue& queue);
std::unique_ptr<MorOps> make_mor_ops(Queue& queue);
std::unique_ptr<ScaledProducts> make_scaled_products(Queue& queue);
std::unique_ptr<Fft> make_fft(Queue& queue);
/// Names the implementation of long transforms; "" while none was prepared.
std::string describe_fft(const Fft& fft);
std::unique_ptr<ModeProducts> make_mode_products(Queue& queue);

}  // namespace tenon::cuda
