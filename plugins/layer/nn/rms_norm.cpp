// Layer `rms_norm`: the device's operator between a declared statistic and a parameter. Rows that are on
// several ranks are normalised in shards; the gradient of the gain is a sum over the rows of all ranks either
// way.
#include "rms_norm.hpp"

namespace tenon::nn {

void RmsNorm::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 1);
  const Layout layout = expect_parts(context, 0);
  const int last = x.rank() - 1;
  const ParameterSpec gain = vector_along(context, "weight", layout, last, Initializer::kOne);
  gain_ = context.parameter(gain);
  gain_sum_ = GradientSum(context, gain, layout);
  ops_ = &context.device().family<NormalisationOps>();
  elementwise_ = &context.device().family<Elementwise>();
  rstd_ = context.saved({{rows_of(x)}, statistics(context.activations())});
  if (const NormSets sets{0, last}; lie_apart(layout, sets))
    parts_.emplace(context, layout, sets, PartNormSpec{.eps = eps_, .gain_per_set = false}, false);
  context.keep_input(0);
  context.output({x, context.activations(), layout});
}

void RmsNorm::forward(ForwardContext& context) {
  const TensorView gain = context.parameter(gain_), rstd = context.saved(rstd_);
  if (parts_) {
    parts_->forward(context, {.gain = gain, .rstd = rstd});
  } else if (!context.input(0).empty()) {
    ops_->rms_norm(matrix(context.input(0)), gain, eps_, matrix(context.output(0)), rstd);
  }
}

void RmsNorm::backward(BackwardContext& context) {
  const GradientSink dgain = context.gradient(gain_), dx = context.input_gradient(0);
  const TensorView gain = context.parameter(gain_), rstd = context.saved(rstd_);
  if (context.input(0).empty()) {
    gain_sum_.clear(*elementwise_, dgain);
  } else {
    ops_->rms_norm_backward(matrix(context.input(0)), gain, rstd, matrix(context.output_gradient(0)),
                            parts_ || dx.view.empty() ? TensorView{} : matrix(dx.view), dx.accumulate,
                            dgain.view, gain_sum_.adds(dgain));
  }
  if (parts_) parts_->backward(context, {.gain = gain, .rstd = rstd});
  if (!dgain.view.empty()) gain_sum_.close(dgain);
}

}  // namespace tenon::nn
