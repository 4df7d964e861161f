// Layer `rms_norm`: the device's operator between a declared statistic and a parameter.
#include "rms_norm.hpp"

namespace tenon::nn {

void RmsNorm::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 1);
  gain_ = context.parameter(vector_parameter(context, "weight", columns_of(x), Initializer::kOne));
  ops_ = &context.device().family<NormalisationOps>();
  rstd_ = context.saved({{rows_of(x)}, statistics(context.activations())});
  context.keep_input(0);
  context.output({x, context.activations()});
}

void RmsNorm::forward(ForwardContext& context) {
  ops_->rms_norm(matrix(context.input(0)), context.parameter(gain_), eps_, matrix(context.output(0)),
                 context.saved(rstd_));
}

void RmsNorm::backward(BackwardContext& context) {
  const GradientSink dgain = context.gradient(gain_), dx = context.input_gradient(0);
  ops_->rms_norm_backward(matrix(context.input(0)), context.parameter(gain_), context.saved(rstd_),
                          matrix(context.output_gradient(0)),
                          dx.view.empty() ? TensorView{} : matrix(dx.view), dx.accumulate, dgain.view,
                          dgain.accumulate);
}

}  // namespace tenon::nn
