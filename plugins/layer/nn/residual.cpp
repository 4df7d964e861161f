// Layer `residual`: one sum in forward, the same gradient to both inputs in backward.
#include "residual.hpp"

namespace tenon::nn {

void Residual::infer(InferContext& context) {
  expect_inputs(context, 2);
  const Shape part = expect_activation(context, 0, 1);
  expect_activation(context, 1, 1);
  const Layout a = context.input(0).layout, b = context.input(1).layout;
  if (!(a.shape == b.shape))
    refuse(context, "expected two inputs of equal shape, found " + a.shape.text() + " and " + b.shape.text());
  if (!(a == b)) {
    refuse(context, "the inputs must lie alike on the model grid, found " + layout_text(a) + ", and " +
                        layout_text(b) + "; put a repartition before one");
  }
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  context.output({part, context.activations(), a});
}

void Residual::forward(ForwardContext& context) {
  elementwise_->add(flat(context.input(0)), flat(context.input(1)), flat(context.output(0)));
}

void Residual::backward(BackwardContext& context) {
  // In sequence: where both inputs are the same value, the second sink accumulates once the first is written.
  for (int i = 0; i < 2; ++i)
    pass_on(*device_, *elementwise_, context.output_gradient(0), context.input_gradient(i));
}

}  // namespace tenon::nn
