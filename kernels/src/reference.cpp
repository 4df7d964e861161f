// The reference kernel sets: the templates of reference/ through the same pointers as the vector sets.
#include <tenon/kernels/dispatch.hpp>
#include <tenon/kernels/reference/attention.hpp>
#include <tenon/kernels/reference/batch_norm.hpp>
#include <tenon/kernels/reference/cached_attention.hpp>
#include <tenon/kernels/reference/causal_conv.hpp>
#include <tenon/kernels/reference/elementwise.hpp>
#include <tenon/kernels/reference/gated_norm.hpp>
#include <tenon/kernels/reference/gemm.hpp>
#include <tenon/kernels/reference/interaction.hpp>
#include <tenon/kernels/reference/mor.hpp>
#include <tenon/kernels/reference/norm.hpp>
#include <tenon/kernels/reference/quantize.hpp>
#include <tenon/kernels/reference/reduce.hpp>
#include <tenon/kernels/reference/softmax.hpp>
#include <tenon/kernels/reference/ssd_chunked.hpp>
#include <tenon/kernels/reference/window.hpp>

#include "plain_quantize.hpp"

namespace tenon::kernels {
namespace {

template <class S>
constexpr Ops<S> make_ops() {
  namespace r = reference;
  return {
      .gemm = {.gemm = r::gemm<S, S>, .gemm_wide = r::gemm<S, Arith<S>>},
      .attention = {.workspace = r::attention_workspace<S>,
                    .forward = r::attention_forward<S>,
                    .backward = r::attention_backward<S>},
      .cached_attention = {.workspace = r::cached_attention_workspace<S>,
                           .forward = r::cached_attention_forward<S>},
      .norm = {.layer_norm_forward = r::layer_norm_forward<S>,
               .layer_norm_backward_input = r::layer_norm_backward_input<S>,
               .layer_norm_backward_params = r::layer_norm_backward_params<S>,
               .rms_norm_forward = r::rms_norm_forward<S>,
               .rms_norm_backward_input = r::rms_norm_backward_input<S>,
               .rms_norm_backward_params = r::rms_norm_backward_params<S>},
      .elementwise = {.exp = r::exp<S>,
                      .log = r::log<S>,
                      .tanh = r::tanh<S>,
                      .erf = r::erf<S>,
                      .gelu_tanh_forward = r::gelu_tanh_forward<S>,
                      .gelu_tanh_backward = r::gelu_tanh_backward<S>,
                      .gelu_erf_forward = r::gelu_erf_forward<S>,
                      .gelu_erf_backward = r::gelu_erf_backward<S>,
                      .silu_forward = r::silu_forward<S>,
                      .silu_backward = r::silu_backward<S>,
                      .add = r::add<S>,
                      .scale = r::scale<S>,
                      .axpy = r::axpy<S>,
                      .lerp = r::lerp<S>,
                      .fill = r::fill<S>,
                      .add_bias = r::add_bias<S>,
                      .dropout = r::dropout<S>},
      .softmax = {.softmax_forward = r::softmax_forward<S>,
                  .softmax_backward = r::softmax_backward<S>,
                  .cross_entropy_begin = r::cross_entropy_begin<S>,
                  .cross_entropy_chunk = r::cross_entropy_chunk<S>,
                  .cross_entropy_finish = r::cross_entropy_finish<S>,
                  .cross_entropy_backward = r::cross_entropy_backward<S>},
      .embedding = {.gather = r::gather<S>, .scatter_add = r::scatter_add<S>},
      .reduce = {.block_sums = r::block_sums<S>,
                 .block_sums_of_squares = r::block_sums_of_squares<S>,
                 .first_non_finite = r::first_non_finite<S>,
                 .column_sums = r::column_sums<S>},
      .window = {.unfold = r::unfold<S>,
                 .fold = r::fold<S>,
                 .max_pool_forward = r::max_pool_forward<S>,
                 .max_pool_backward = r::max_pool_backward<S>,
                 .average_pool_forward = r::average_pool_forward<S>,
                 .average_pool_backward = r::average_pool_backward<S>},
      .batch_norm = {.forward = r::batch_norm_forward<S>,
                     .fixed = r::batch_norm_fixed<S>,
                     .backward = r::batch_norm_backward<S>},
      .interaction = {.forward = r::interaction_forward<S>, .backward = r::interaction_backward<S>},
      .ssd = {.forward_workspace = r::ssd_forward_workspace<S>,
              .backward_workspace = r::ssd_backward_workspace<S>,
              .forward = r::ssd_forward<S>,
              .backward = r::ssd_backward<S>,
              .finish = r::ssd_finish<S>,
              .step = r::ssd_step<S>},
      .causal_conv = {.workspace = r::causal_conv_workspace<S>,
                      .forward = r::causal_conv_forward<S>,
                      .backward = r::causal_conv_backward<S>,
                      .step = r::causal_conv_step<S>},
      .gated_norm = {.forward = r::gated_norm_forward<S>, .backward = r::gated_norm_backward<S>},
  };
}

template <class S>
constexpr QuantizeOps<S> make_quantize_ops() {
  namespace r = reference;
  return {.amax = r::amax<S>,
          .amax_rotated = r::amax_rotated<S>,
          .quantize = r::quantize<S>,
          .dequantize = r::dequantize<S>};
}

void f32_to_bf16(const float* x, Bf16* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_bf16(x[i]);
}
void bf16_to_f32(const Bf16* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_float(x[i]);
}

template <class T>
constexpr BatchedComplexGemmOps<T> make_batched_complex_gemm_ops() {
  namespace r = reference;
  return {.workspace = r::batched_complex_gemm_workspace<T>,
          .forward = r::batched_complex_gemm_forward<T>,
          .backward_input = r::batched_complex_gemm_backward_input<T>,
          .backward_weight = r::batched_complex_gemm_backward_weight<T>};
}

constexpr KernelTable kFloat = {
    .name = "reference",
    .f32 = make_ops<float>(),
    .bf16 = make_ops<Bf16>(),
    .convert = {.f32_to_bf16 = f32_to_bf16, .bf16_to_f32 = bf16_to_f32},
    .modes = make_batched_complex_gemm_ops<float>(),
    .quantize_f32 = make_quantize_ops<float>(),
    .quantize_bf16 = make_quantize_ops<Bf16>(),
    .mor = {.strip = reference::mor_strip},
};
constexpr DoubleTable kDouble = {
    .f64 = make_ops<double>(),
    .modes = make_batched_complex_gemm_ops<double>(),
    .ssd_chunked = {.forward_workspace = reference::ssd_chunked_forward_workspace<double>,
                    .backward_workspace = reference::ssd_chunked_backward_workspace<double>,
                    .forward = reference::ssd_chunked_forward<double>,
                    .backward = reference::ssd_chunked_backward<double>,
                    .finish = reference::ssd_finish<double>,
                    .step = reference::ssd_step<double>},
};

}  // namespace

namespace plain {

std::uint32_t amax(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return reference::amax(x, rows, columns, stride);
}
std::uint32_t amax(const Bf16* x, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return reference::amax(x, rows, columns, stride);
}
std::uint32_t amax_rotated(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           bool along_rows) {
  return reference::amax_rotated(x, rows, columns, stride, along_rows);
}
std::uint32_t amax_rotated(const Bf16* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           bool along_rows) {
  return reference::amax_rotated(x, rows, columns, stride, along_rows);
}
void quantize(const QuantizeArgs<float>& args) {
  reference::quantize(args);
}
void quantize(const QuantizeArgs<Bf16>& args) {
  reference::quantize(args);
}
void dequantize(const QuantizeArgs<float>& args) {
  reference::dequantize(args);
}
void dequantize(const QuantizeArgs<Bf16>& args) {
  reference::dequantize(args);
}

}  // namespace plain

const KernelTable& reference_kernels() {
  return kFloat;
}
const DoubleTable& reference_double_kernels() {
  return kDouble;
}

}  // namespace tenon::kernels
