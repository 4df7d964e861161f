// Layer `batch_norm`: batch statistics in training, running ones in evaluation.
#include "batch_norm.hpp"

namespace tenon::nn {
namespace {

ParameterSpec running(const InferContext& context, std::string_view member, std::int64_t channels,
                      Initializer init) {
  ParameterSpec spec = vector_parameter(context, member, channels, init);
  spec.role = Role::kBuffer;
  spec.trainable = false;
  return spec;
}

}  // namespace

void BatchNorm::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 2);
  const std::int64_t channels = x[1];
  if (context.training() && x.elements() <= channels) {
    refuse(context, "expected more than one value per channel to take a variance of, found x of shape " +
                        x.text() + "; raise [data] batch");
  }
  gain_ = context.parameter(vector_parameter(context, "weight", channels, Initializer::kOne));
  bias_ = context.parameter(vector_parameter(context, "bias", channels, Initializer::kZero));
  running_mean_ = context.parameter(running(context, "running_mean", channels, Initializer::kZero));
  running_variance_ = context.parameter(running(context, "running_var", channels, Initializer::kOne));
  ops_ = &context.device().family<NormalisationOps>();
  mean_ = context.saved({{channels}, statistics(context.activations())});
  rstd_ = context.saved({{channels}, statistics(context.activations())});
  context.keep_input(0);
  context.output({x, context.activations()});
}

void BatchNorm::forward(ForwardContext& context) {
  if (context.training()) {
    ops_->batch_norm(spec_, context.input(0), context.parameter(gain_), context.parameter(bias_),
                     context.staged(running_mean_), context.staged(running_variance_), context.output(0),
                     context.saved(mean_), context.saved(rstd_));
  } else {
    ops_->batch_norm_fixed(spec_, context.input(0), context.parameter(gain_), context.parameter(bias_),
                           context.parameter(running_mean_), context.parameter(running_variance_),
                           context.output(0));
  }
}

void BatchNorm::backward(BackwardContext& context) {
  const GradientSink dgain = context.gradient(gain_), dbias = context.gradient(bias_),
                     dx = context.input_gradient(0);
  // Both vectors are this node's alone, so their sums begin together; either may be frozen.
  const bool accumulate = dgain.view.empty() ? dbias.accumulate : dgain.accumulate;
  ops_->batch_norm_backward(context.input(0), context.parameter(gain_), context.saved(mean_),
                            context.saved(rstd_), context.output_gradient(0), dx.view, dx.accumulate,
                            dgain.view, dbias.view, accumulate);
}

}  // namespace tenon::nn
