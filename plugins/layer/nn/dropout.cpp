// Layer `dropout`: forward and backward apply the same drawn mask, which is never stored.
#include "dropout.hpp"

namespace tenon::nn {

void Dropout::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 1);
  elements_per_sample_ = x.elements() / x[0];
  device_ = &context.device();
  nn_ = &device_->family<NeuralOps>();
  elementwise_ = &device_->family<Elementwise>();
  context.output({x, context.activations()});
}

void Dropout::apply(RunContext& context, TensorView from, TensorView to, bool accumulate) {
  nn_->dropout(flat(from), flat(to), p_, context.random("dropout"), context.draw_step(),
               context.first_element(elements_per_sample_), accumulate);
}

void Dropout::forward(ForwardContext& context) {
  if (active(context)) {
    apply(context, context.input(0), context.output(0), false);
  } else {
    device_->copy(context.input(0), context.output(0));
  }
}

void Dropout::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (!active(context)) {
    pass_on(*device_, *elementwise_, context.output_gradient(0), dx);
  } else if (!dx.view.empty()) {
    apply(context, context.output_gradient(0), dx.view, dx.accumulate);  // the mask is drawn again, not kept
  }
}

}  // namespace tenon::nn
