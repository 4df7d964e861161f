// Layer `flatten`: a copy under another shape.
#include "flatten.hpp"

namespace tenon::nn {

void Flatten::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 1);
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  context.output({{x[0], x.elements() / x[0]}, context.activations()});
}

void Flatten::forward(ForwardContext& context) {
  device_->copy(flat(context.input(0)), flat(context.output(0)));
}

void Flatten::backward(BackwardContext& context) {
  pass_on(*device_, *elementwise_, context.output_gradient(0), context.input_gradient(0));
}

}  // namespace tenon::nn
