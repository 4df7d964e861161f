// Makers of the operator families; each family is one source file.
#pragma once

#include "common.hpp"

#include <tenon/ops/attention.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/ops/copy.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/spectral.hpp>
#include <tenon/sdk/ops/interaction.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/sdk/ops/signs.hpp>
#include <tenon/sdk/ops/update.hpp>

#include <memory>

namespace tenon::cpu {

std::unique_ptr<Blas> make_blas(const Kernels& kernels);
std::unique_ptr<NeuralOps> make_neural_ops(const Kernels& kernels);
std::unique_ptr<Attention> make_attention(const Kernels& kernels);
std::unique_ptr<EmbeddingOps> make_embedding_ops(const Kernels& kernels);
std::unique_ptr<Elementwise> make_elementwise(const Kernels& kernels);
std::unique_ptr<ReduceOps> make_reduce_ops(const Kernels& kernels);
std::unique_ptr<UpdateOps> make_update_ops(const Kernels& kernels);
std::unique_ptr<WindowOps> make_window_ops(const Kernels& kernels);
std::unique_ptr<Convolutions> make_convolutions(const Kernels& kernels);
std::unique_ptr<NormalisationOps> make_normalisation_ops(const Kernels& kernels);
std::unique_ptr<PartNormOps> make_part_norm_ops();
std::unique_ptr<InteractionOps> make_interaction_ops(const Kernels& kernels);
std::unique_ptr<LineSums> make_line_sums();
std::unique_ptr<SignOps> make_sign_ops();
std::unique_ptr<QuantOps> make_quant_ops(const Kernels& kernels);
std::unique_ptr<MorOps> make_mor_ops(const Kernels& kernels);
std::unique_ptr<Fft> make_fft(const Kernels& kernels);
std::unique_ptr<ModeProducts> make_mode_products(const Kernels& kernels);

}  // namespace tenon::cpu
