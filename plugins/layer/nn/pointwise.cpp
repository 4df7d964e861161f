// Forward, backward and the offered epilogue of y = map(x).
#include "pointwise.hpp"

namespace tenon::nn {

void Pointwise::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 1);
  nn_ = &context.device().family<NeuralOps>();
  const Layout layout = context.input(0).layout;
  if (!layout.partial.empty())
    refuse(context, "x is a sum over ranks (" + layout_text(layout) + "); put a repartition before the map");
  context.output({x, context.activations(), layout});
  if (reads_ == Reads::kInput) {
    context.keep_input(0);
  } else {
    context.keep_output(0);
  }
  context.offer_epilogue(map_);
}

void Pointwise::forward(ForwardContext& context) {
  nn_->activation(map_, flat(context.input(0)), flat(context.output(0)));
}

void Pointwise::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.empty()) return;
  const TensorView known = reads_ == Reads::kInput ? context.input(0) : context.output(0);
  nn_->activation_backward(map_, flat(known), flat(context.output_gradient(0)), flat(dx.view), dx.accumulate);
}

}  // namespace tenon::nn
