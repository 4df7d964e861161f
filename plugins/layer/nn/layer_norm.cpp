// Layer `layer_norm`: the device's operator between declared statistics and parameters. Rows that are on
// several ranks are normalised in shards; gradients of gain and bias are sums over the rows of all ranks
// either way.
#include "layer_norm.hpp"

namespace tenon::nn {

void LayerNorm::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 1);
  const Layout layout = expect_parts(context, 0);
  const int last = x.rank() - 1;
  const std::int64_t rows = rows_of(x), columns = columns_of(x);
  const ParameterSpec gain = vector_along(context, "weight", layout, last, Initializer::kOne),
                      bias = vector_along(context, "bias", layout, last, Initializer::kZero);
  gain_ = context.parameter(gain);
  bias_ = context.parameter(bias);
  gain_sum_ = GradientSum(context, gain, layout);
  bias_sum_ = GradientSum(context, bias, layout);
  nn_ = &context.device().family<NeuralOps>();
  elementwise_ = &context.device().family<Elementwise>();
  mean_ = context.saved({{rows}, statistics(context.activations())});
  rstd_ = context.saved({{rows}, statistics(context.activations())});
  scratch_ = context.workspace(nn_->layer_norm_scratch(rows, columns, context.activations()));
  if (const NormSets sets{0, last}; lie_apart(layout, sets))
    parts_.emplace(context, layout, sets, PartNormSpec{.eps = eps_, .gain_per_set = false}, true);
  context.keep_input(0);
  context.output({x, context.activations(), layout});
}

void LayerNorm::forward(ForwardContext& context) {
  const TensorView gain = context.parameter(gain_), bias = context.parameter(bias_),
                   mean = context.saved(mean_), rstd = context.saved(rstd_);
  if (parts_) {
    parts_->forward(context, {.gain = gain, .bias = bias, .mean = mean, .rstd = rstd});
  } else if (!context.input(0).empty()) {
    nn_->layer_norm(matrix(context.input(0)), gain, bias, eps_, matrix(context.output(0)), mean, rstd);
  }
}

void LayerNorm::backward(BackwardContext& context) {
  const GradientSink dgain = context.gradient(gain_), dbias = context.gradient(bias_),
                     dx = context.input_gradient(0);
  const TensorView gain = context.parameter(gain_), mean = context.saved(mean_), rstd = context.saved(rstd_);
  if (context.input(0).empty()) {
    gain_sum_.clear(*elementwise_, dgain);
    bias_sum_.clear(*elementwise_, dbias);
  } else {
    // Both vectors belong to this node alone, so their sums begin together; either may be frozen.
    const bool accumulate = dgain.view.empty() ? bias_sum_.adds(dbias) : gain_sum_.adds(dgain);
    nn_->layer_norm_backward(matrix(context.input(0)), gain, mean, rstd, matrix(context.output_gradient(0)),
                             parts_ || dx.view.empty() ? TensorView{} : matrix(dx.view), dx.accumulate,
                             dgain.view, dbias.view, accumulate, context.workspace(scratch_));
  }
  if (parts_) parts_->backward(context, {.gain = gain, .mean = mean, .rstd = rstd});
  if (!dgain.view.empty()) gain_sum_.close(dgain);
  if (!dbias.view.empty()) bias_sum_.close(dbias);
}

}  // namespace tenon::nn
