// The kernel set of one instruction set: compiled once each for portable, avx2 and avx512 with other flags.
// TENON_KERNEL_SET names the set, TENON_SIMD_BYTES the register width. Only the getter has external linkage;
// a test reads the object files to hold this (see types.hpp for why).
#include <tenon/kernels/table.hpp>

#include "isa/attention.inc.hpp"
#include "isa/batch_norm.inc.hpp"
#include "isa/batched_complex_gemm.inc.hpp"
#include "isa/cached_attention.inc.hpp"
#include "isa/causal_conv.inc.hpp"
#include "isa/convolution_weight.inc.hpp"
#include "isa/dequantize.inc.hpp"
#include "isa/elementwise.inc.hpp"
#include "isa/gated_norm.inc.hpp"
#include "isa/gemm.inc.hpp"
#include "isa/interaction.inc.hpp"
#include "isa/mor.inc.hpp"
#include "isa/norm.inc.hpp"
#include "isa/pool.inc.hpp"
#include "isa/quantize.inc.hpp"
#include "isa/reduce.inc.hpp"
#include "isa/softmax.inc.hpp"
#include "isa/ssd.inc.hpp"
#include "isa/ssd_backward.inc.hpp"
#include "isa/window.inc.hpp"

#define TENON_JOIN_(a, b) a##b
#define TENON_JOIN(a, b) TENON_JOIN_(a, b)
#define TENON_TEXT_(a) #a
#define TENON_TEXT(a) TENON_TEXT_(a)

namespace tenon::kernels {
namespace {

template <class S>
constexpr Ops<S> make_ops() {
  return {
      .gemm = {.gemm = gemm<S, S>, .gemm_wide = gemm<S, float>},
      .attention = {.workspace = attention_workspace<S>,
                    .forward = attention_forward<S>,
                    .backward = attention_backward<S>},
      .cached_attention = {.workspace = cached_attention_workspace<S>,
                           .forward = cached_attention_forward<S>},
      .norm = {.layer_norm_forward = layer_norm_forward<S>,
               .layer_norm_backward_input = layer_norm_backward_input<S>,
               .layer_norm_backward_params = layer_norm_backward_params<S>,
               .rms_norm_forward = rms_norm_forward<S>,
               .rms_norm_backward_input = rms_norm_backward_input<S>,
               .rms_norm_backward_params = rms_norm_backward_params<S>},
      .elementwise = {.exp = exp_map<S>,
                      .log = log_map<S>,
                      .tanh = tanh_map<S>,
                      .erf = erf_map<S>,
                      .gelu_tanh_forward = gelu_tanh_forward<S>,
                      .gelu_tanh_backward = gelu_tanh_backward<S>,
                      .gelu_erf_forward = gelu_erf_forward<S>,
                      .gelu_erf_backward = gelu_erf_backward<S>,
                      .silu_forward = silu_forward<S>,
                      .silu_backward = silu_backward<S>,
                      .add = add<S>,
                      .scale = scale<S>,
                      .axpy = axpy<S>,
                      .lerp = lerp<S>,
                      .fill = fill<S>,
                      .add_bias = add_bias<S>,
                      .dropout = dropout<S>},
      .softmax = {.softmax_forward = softmax_forward<S>,
                  .softmax_backward = softmax_backward<S>,
                  .cross_entropy_begin = cross_entropy_begin<S>,
                  .cross_entropy_chunk = cross_entropy_chunk<S>,
                  .cross_entropy_finish = cross_entropy_finish<S>,
                  .cross_entropy_backward = cross_entropy_backward<S>},
      .embedding = {.gather = gather<S>, .scatter_add = scatter_add<S>},
      .reduce = {.block_sums = block_sums<S>,
                 .block_sums_of_squares = block_sums_of_squares<S>,
                 .first_non_finite = first_non_finite<S>,
                 .column_sums = column_sums<S>},
      .window = {.unfold = unfold<S>,
                 .fold = fold<S>,
                 .max_pool_forward = max_pool_forward<S>,
                 .max_pool_backward = max_pool_backward<S>,
                 .average_pool_forward = average_pool_forward<S>,
                 .average_pool_backward = average_pool_backward<S>},
      .batch_norm = {.forward = batch_norm_forward<S>,
                     .fixed = batch_norm_fixed<S>,
                     .backward = batch_norm_backward<S>},
      .interaction = {.forward = interaction_forward<S>, .backward = interaction_backward<S>},
      .ssd = {.forward_workspace = ssd_forward_workspace<S>,
              .backward_workspace = ssd_backward_workspace<S>,
              .forward = ssd_forward<S>,
              .backward = ssd_backward<S>,
              .finish = ssd_finish<S>,
              .step = ssd_step<S>},
      .causal_conv = {.workspace = causal_conv_workspace<S>,
                      .forward = causal_conv_forward<S>,
                      .backward = causal_conv_backward<S>,
                      .step = causal_conv_step<S>},
      .gated_norm = {.forward = gated_norm_forward<S>, .backward = gated_norm_backward<S>},
  };
}

template <class S>
constexpr QuantizeOps<S> make_quantize_ops() {
  return {
      .amax = amax<S>, .amax_rotated = amax_rotated<S>, .quantize = quantize<S>, .dequantize = dequantize<S>};
}

constexpr KernelTable kTable = {
    .name = TENON_TEXT(TENON_KERNEL_SET),
    .f32 = make_ops<float>(),
    .bf16 = make_ops<Bf16>(),
    .convert = {.f32_to_bf16 = f32_to_bf16, .bf16_to_f32 = bf16_to_f32},
    .modes = {.workspace = batched_complex_gemm_workspace,
              .forward = batched_complex_gemm_forward,
              .backward_input = batched_complex_gemm_backward_input,
              .backward_weight = batched_complex_gemm_backward_weight},
#if TENON_SIMD_BYTES > 16  // without fused multiply-adds, windows and products are as good
    .convolution = make_convolution_ops(),
#endif
    .quantize_f32 = make_quantize_ops<float>(),
    .quantize_bf16 = make_quantize_ops<Bf16>(),
    .mor = {.strip = mor_strip},
};

}  // namespace

const KernelTable& TENON_JOIN(kernels_, TENON_KERNEL_SET)();
const KernelTable& TENON_JOIN(kernels_, TENON_KERNEL_SET)() {
  return kTable;
}

}  // namespace tenon::kernels
