// Layer `softmax_cross_entropy`: keeps one log-sum-exp per row instead of the probabilities.
#include "softmax_cross_entropy.hpp"

namespace tenon::nn {

void SoftmaxCrossEntropy::infer(InferContext& context) {
  expect_inputs(context, 2);
  const Layout counted = expect_targets(context, "logits");
  const Shape logits = context.input(0).shape;
  const std::int64_t rows = rows_of(logits);
  device_ = &context.device();
  nn_ = &device_->family<NeuralOps>();
  elementwise_ = &device_->family<Elementwise>();
  const DType type = statistics(context.activations());
  lse_ = context.saved({{rows}, type});
  losses_ = context.workspace(window_bytes(type, rows));
  spare_ = context.workspace(window_bytes(context.activations(), logits.elements()));
  context.keep_input(0);
  context.keep_input(1);
  sum_.infer(context, counted, rows);
}

void SoftmaxCrossEntropy::forward(ForwardContext& context) {
  const TensorView lse = context.saved(lse_), targets = flat(context.input(1));
  const TensorView losses = window(context.workspace(losses_), 0, lse.dtype, targets.shape);
  nn_->softmax_cross_entropy(matrix(context.input(0)), targets, smoothing_, losses, lse);
  sum_.write(losses, targets, context.output(0));
}

void SoftmaxCrossEntropy::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.empty()) return;
  const TensorView logits = matrix(context.input(0));
  const TensorView written =
      dx.accumulate ? window(context.workspace(spare_), 0, logits.dtype, logits.shape) : matrix(dx.view);
  nn_->softmax_cross_entropy_backward(logits, flat(context.input(1)), smoothing_, context.saved(lse_), seed_,
                                      written);
  if (dx.accumulate) pass_on(*device_, *elementwise_, written, dx);
}

}  // namespace tenon::nn
