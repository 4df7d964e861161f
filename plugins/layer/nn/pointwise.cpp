// Maps, sums and masks of elements.
#include "pointwise.hpp"

#include <tenon/transport.hpp>

#include <algorithm>

namespace tenon::nn {

// Forward, backward and the offered epilogue of y = map(x).

void Pointwise::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
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

// Layer `residual`: one sum in forward, the same gradient to both inputs in backward.

void Residual::infer(InferContext& context) {
  const Shape part = context.input(0).shape;
  const Layout a = context.input(0).layout;
  expect_alike(context, a, context.input(1).layout);
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  context.output({part, context.activations(), a});
  for (int i = 0; i < 2; ++i) passes_gradient(context, i);
}

void Residual::forward(ForwardContext& context) {
  elementwise_->add(flat(context.input(0)), flat(context.input(1)), flat(context.output(0)));
}

void Residual::backward(BackwardContext& context) {
  // In sequence: where both inputs are the same value, the second sink accumulates once the first is written.
  for (int i = 0; i < 2; ++i)
    pass_on(*device_, *elementwise_, context.output_gradient(0), context.input_gradient(i));
}

// Layer `dropout`: forward and backward apply the same drawn mask, which is never stored. The mask of a shard
// is drawn in runs, whose elements are consecutive in the whole value, too; on one rank there is one run.

void Dropout::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
  const Layout layout = context.input(0).layout;
  whole_ = layout.shape;
  part_ = part_of(layout, context.mesh().place());
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
