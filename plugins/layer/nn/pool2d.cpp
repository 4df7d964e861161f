// Layers `max_pool2d` and `average_pool2d`: one operator of the device each way.
#include "pool2d.hpp"

#include <fmt/format.h>

namespace tenon::nn {
namespace {

/// A window entirely in the padding would have no element to choose.
void expect_small_padding(const InferContext& context, const WindowSpec& window) {
  for (int d = 0; d < 2; ++d) {
    if (2 * window.pad_low[d] <= window.kernel[d]) continue;
    refuse(context,
           fmt::format("padding {} is more than half of the kernel {}", window.pad_low[d], window.kernel[d]));
  }
}

}  // namespace

void MaxPool2d::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_image(context);
  window_ = dilated_window_over(context, options_, x);
  expect_small_padding(context, window_);
  ops_ = &context.device().family<WindowOps>();
  const Shape y = image_of(window_, x[0], x[1]);
  index_ = context.saved({y, DType::kI32});
  context.output({y, context.activations()});
}

void MaxPool2d::forward(ForwardContext& context) {
  ops_->max_pool(window_, context.input(0), context.output(0), context.saved(index_));
}

void MaxPool2d::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.empty()) return;
  ops_->max_pool_backward(window_, context.saved(index_), context.output_gradient(0), dx.view, dx.accumulate);
}

void AveragePool2d::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_image(context);
  if (options_.boolean("global")) {
    for (int d = 0; d < 2; ++d) window_.extent[d] = window_.kernel[d] = x[2 + d];
  } else {
    window_ = window_over(context, options_, x);
    expect_small_padding(context, window_);
  }
  count_padding_ = options_.boolean("count_padding");
  ops_ = &context.device().family<WindowOps>();
  context.output({image_of(window_, x[0], x[1]), context.activations()});
}

void AveragePool2d::forward(ForwardContext& context) {
  ops_->average_pool(window_, context.input(0), count_padding_, context.output(0));
}

void AveragePool2d::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.empty()) return;
  ops_->average_pool_backward(window_, context.output_gradient(0), count_padding_, dx.view, dx.accumulate);
}

}  // namespace tenon::nn
