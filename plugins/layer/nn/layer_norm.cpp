// Layer `layer_norm`: the device's operator between declared statistics and parameters.
#include "layer_norm.hpp"

namespace tenon::nn {

void LayerNorm::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 1);
  const std::int64_t rows = rows_of(x), columns = columns_of(x);
  gain_ = context.parameter(vector_parameter(context, "weight", columns, Initializer::kOne));
  bias_ = context.parameter(vector_parameter(context, "bias", columns, Initializer::kZero));
  nn_ = &context.device().family<NeuralOps>();
  mean_ = context.saved({{rows}, statistics(context.activations())});
  rstd_ = context.saved({{rows}, statistics(context.activations())});
  scratch_ = context.workspace(nn_->layer_norm_scratch(rows, columns, context.activations()));
  context.keep_input(0);
  context.output({x, context.activations()});
}

void LayerNorm::forward(ForwardContext& context) {
  nn_->layer_norm(matrix(context.input(0)), context.parameter(gain_), context.parameter(bias_), eps_,
                  matrix(context.output(0)), context.saved(mean_), context.saved(rstd_));
}

void LayerNorm::backward(BackwardContext& context) {
  const GradientSink dgain = context.gradient(gain_), dbias = context.gradient(bias_),
                     dx = context.input_gradient(0);
  // Both vectors are this node's alone, so their sums begin together; either may be frozen.
  const bool accumulate = dgain.view.empty() ? dbias.accumulate : dgain.accumulate;
  nn_->layer_norm_backward(matrix(context.input(0)), context.parameter(gain_), context.saved(mean_),
                           context.saved(rstd_), matrix(context.output_gradient(0)),
                           dx.view.empty() ? TensorView{} : matrix(dx.view), dx.accumulate, dgain.view,
                           dbias.view, accumulate, context.workspace(scratch_));
}

}  // namespace tenon::nn
