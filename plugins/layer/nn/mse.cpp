// Layer `mse`: differences and squares in float32 (float64) whatever the activations are.
#include "mse.hpp"

namespace tenon::nn {

void Mse::infer(InferContext& context) {
  expect_inputs(context, 2);
  const Shape x = expect_activation(context, 0, 1);
  expect_activation(context, 1, 1);
  const Layout layout = context.input(0).layout, targets = context.input(1).layout;
  if (!(layout.shape == targets.shape)) {
    refuse(context, "expected predictions and targets of equal shape, found " + layout.shape.text() +
                        " and " + targets.shape.text());
  }
  if (!(layout == targets) || !layout.partial.empty()) {
    refuse(context,
           "predictions and targets must lie alike on the model grid and be no sums over ranks, found " +
               layout_text(layout) + ", and " + layout_text(targets) + "; put a repartition before one");
  }
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  reduce_ = &device_->family<ReduceOps>();
  const std::size_t bytes = window_bytes(statistics(context.activations()), x.elements());
  left_ = context.workspace(bytes);
  right_ = context.workspace(bytes);
  narrow_ = context.workspace(window_bytes(context.activations(), x.elements()));
  context.keep_input(0);
  context.keep_input(1);
  sum_.infer(context, layout, 0);
}

Mse::Error Mse::difference(RunContext& context) const {
  const TensorView x = flat(context.input(0));
  const TensorView left = window(context.workspace(left_), 0, statistics(x.dtype), x.shape),
                   right = window(context.workspace(right_), 0, statistics(x.dtype), x.shape);
  elementwise_->convert(x, left);
  elementwise_->convert(flat(context.input(1)), right);
  return {left, elementwise_->subtract_targets(left, right, left)};
}

void Mse::forward(ForwardContext& context) {
  const Error error = difference(context);
  sum_.write(reduce_->sum_of_squares(error.values), static_cast<double>(error.counted), context.output(0));
}

void Mse::backward(BackwardContext& context) {
  const TensorView error = difference(context).values;
  elementwise_->scale(error, 2 * seed_);
  for (int i = 0; i < 2; ++i) {
    if (i == 1) elementwise_->scale(error, -1);
    const GradientSink sink = context.input_gradient(i);
    if (sink.view.empty()) continue;
    const TensorView narrow = window(context.workspace(narrow_), 0, sink.view.dtype, error.shape);
    elementwise_->convert(error, narrow);
    pass_on(*device_, *elementwise_, narrow, sink);
  }
}

}  // namespace tenon::nn
