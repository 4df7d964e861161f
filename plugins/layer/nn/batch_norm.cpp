// Layer `batch_norm`: batch statistics in training, running ones in evaluation. Every rank of a model grid
// that has a channel has its totals, so each of them has the whole gradients of gain and bias.
#include "batch_norm.hpp"

#include "parts.hpp"

namespace tenon::nn {
namespace {

constexpr NormSets kChannels{1, 2};

ParameterSpec running(ParameterSpec spec) {
  spec.role = Role::kBuffer;
  spec.trainable = false;
  return spec;
}

}  // namespace

void BatchNorm::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 2);
  const Layout layout = expect_parts(context, 0);
  if (context.training() && layout.shape.elements() <= layout.shape[1]) {
    refuse(context, "expected more than one value per channel to take a variance of, found x of shape " +
                        layout.shape.text() + "; raise [data] batch");
  }
  const auto vector = [&](std::string_view member, Initializer init) {
    return vector_along(context, member, layout, 1, init);
  };
  gain_ = context.parameter(vector("weight", Initializer::kOne));
  bias_ = context.parameter(vector("bias", Initializer::kZero));
  running_mean_ = context.parameter(running(vector("running_mean", Initializer::kZero)));
  running_variance_ = context.parameter(running(vector("running_var", Initializer::kOne)));
  device_ = &context.device();
  ops_ = &device_->family<NormalisationOps>();
  const DType type = statistics(context.activations());
  mean_ = context.saved({{x[1]}, type});
  rstd_ = context.saved({{x[1]}, type});
  if (context.training() && lie_apart(layout, kChannels)) {
    parts_.emplace(context, layout, kChannels,
                   PartNormSpec{.eps = spec_.eps, .momentum = spec_.momentum, .gain_per_set = true}, true);
    elementwise_ = &device_->family<Elementwise>();
    narrow_ = context.workspace(window_bytes(type, x[1]));
  }
  context.keep_input(0);
  context.output({x, context.activations(), layout});
}

void BatchNorm::forward(ForwardContext& context) {
  if (context.training() && parts_) {
    parts_->forward(context, {.gain = context.parameter(gain_),
                              .bias = context.parameter(bias_),
                              .mean = context.saved(mean_),
                              .rstd = context.saved(rstd_),
                              .running_mean = context.staged(running_mean_),
                              .running_variance = context.staged(running_variance_)});
    return;
  }
  if (context.input(0).empty()) return;
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
  const GradientSink dgain = context.gradient(gain_), dbias = context.gradient(bias_);
  if (parts_) {
    const TensorView sums = parts_->backward(
        context,
        {.gain = context.parameter(gain_), .mean = context.saved(mean_), .rstd = context.saved(rstd_)});
    const TensorView both = sums.reshaped({2, sums.elements() / 2});
    write(context, both.rows(0, 1), dbias);
    write(context, both.rows(1, 2), dgain);
    return;
  }
  if (context.input(0).empty()) return;  // no channel here
  const GradientSink dx = context.input_gradient(0);
  // Both vectors belong to this node alone, so their sums begin together; either may be frozen.
  const bool accumulate = dgain.view.empty() ? dbias.accumulate : dgain.accumulate;
  ops_->batch_norm_backward(context.input(0), context.parameter(gain_), context.saved(mean_),
                            context.saved(rstd_), context.output_gradient(0), dx.view, dx.accumulate,
                            dgain.view, dbias.view, accumulate);
}

void BatchNorm::write(BackwardContext& context, TensorView totals, const GradientSink& sink) {
  if (sink.view.empty()) return;
  const TensorView narrow = window(context.workspace(narrow_), 0, sink.view.dtype, sink.view.shape);
  elementwise_->convert(flat(totals), narrow);
  pass_on(*device_, *elementwise_, narrow, sink);
}

}  // namespace tenon::nn
