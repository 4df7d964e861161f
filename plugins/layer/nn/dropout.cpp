// Layer `dropout`: forward and backward apply the same drawn mask, which is never stored. The mask of a shard
// is drawn in runs, whose elements are consecutive in the whole value, too; on one rank there is one run.
#include "dropout.hpp"

#include <tenon/transport.hpp>

#include <algorithm>

namespace tenon::nn {

void Dropout::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 1);
  const Layout layout = context.input(0).layout;
  whole_ = layout.shape;
  part_ = part_of(layout, context.grid().place());
  run_ = 1;
  for (outer_ = x.rank() - 1; outer_ >= 0; --outer_) {
    run_ *= x[outer_];
    if (x[outer_] != whole_[outer_]) break;
  }
  device_ = &context.device();
  nn_ = &device_->family<NeuralOps>();
  elementwise_ = &device_->family<Elementwise>();
  context.output({x, context.activations(), layout});  // the mask of a sum is that of its terms
}

std::int64_t Dropout::first_of(std::int64_t run) const {
  std::int64_t index = 0, stride = 1;
  for (int dim = whole_.rank() - 1; dim >= 0; --dim) {
    std::int64_t at = part_.offset[dim];
    if (dim < outer_) at += run % part_.extents[dim], run /= part_.extents[dim];
    index += at * stride, stride *= whole_[dim];
  }
  return index;
}

void Dropout::apply(RunContext& context, TensorView from, TensorView to, bool accumulate) {
  const TensorView x = flat(from), y = flat(to);
  const RandomKey key = context.random("dropout");
  const std::uint64_t batch = context.first_element(whole_.elements() / whole_[0]);
  for (std::int64_t begin = 0; begin < x.elements(); begin += run_) {
    const std::int64_t end = std::min(begin + run_, x.elements());
    nn_->dropout(x.rows(begin, end), y.rows(begin, end), p_, key, context.draw_step(),
                 batch + static_cast<std::uint64_t>(first_of(begin / run_)), accumulate);
  }
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
