// Layer `residual`: one sum in forward, the same gradient to both inputs in backward.
#include "residual.hpp"

namespace tenon::nn {

void Residual::infer(InferContext& context) {
  expect_inputs(context, 2);
  const Shape a = expect_activation(context, 0, 1), b = expect_activation(context, 1, 1);
  if (!(a == b))
    refuse(context, "expected two inputs of equal shape, found " + a.text() + " and " + b.text());
  const Layout layout = context.input(0).layout;
  if (!(layout == context.input(1).layout)) {
    refuse(context,
           "the inputs lie apart: " + layout_text(layout) + " and " + layout_text(context.input(1).layout));
  }
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  context.output({a, context.activations(), layout});
}

void Residual::forward(ForwardContext& context) {
  elementwise_->add(flat(context.input(0)), flat(context.input(1)), flat(context.output(0)));
}

void Residual::backward(BackwardContext& context) {
  // One after the other: where both inputs are the same value, the second sink says accumulate once the first
  // is served.
  for (int i = 0; i < 2; ++i)
    pass_on(*device_, *elementwise_, context.output_gradient(0), context.input_gradient(i));
}

}  // namespace tenon::nn
