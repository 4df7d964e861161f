// Layer `attention`: passes q, k, v to the kernel that the device prepared, and keeps what its backward
// reads.
#include "attention.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::nn {

void SelfAttention::infer(InferContext& context) {
  const Shape q = context.input(0).shape;
  const std::int64_t heads = options_.integer("heads");
  for (int i = 1; i < 3; ++i) {
    const Shape other = context.input(i).shape;
    if (!(other == q))
      refuse(context, "expected q, k, v of equal shape, found " + q.text() + " and " + other.text());
  }
  if (q[2] % heads != 0) {
    refuse(context,
           fmt::format("expected a width that is a multiple of {} heads, found {}", heads, q.text()));
  }
  const std::int64_t head_width = q[2] / heads;
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  kernel_ = device_->family<Attention>().prepare(
      {.batch = q[0],
       .time = q[1],
       .heads = heads,
       .head_width = head_width,
       .window = options_.integer("window"),
       .logit_scale = options_.boolean("scaled") ? 1.0 / std::sqrt(static_cast<double>(head_width)) : 1.0,
       .dtype = context.activations()});
  lse_ = context.saved({{q[0], heads, q[1]}, statistics(context.activations())});
  scratch_ = context.workspace(kernel_->scratch_bytes());
  gradients_ = context.workspace(3 * window_bytes(context.activations(), q.elements()));
  for (int i = 0; i < 3; ++i) context.keep_input(i);
  context.output({q, context.activations()});
  context.keep_output(0);
}

void SelfAttention::forward(ForwardContext& context) {
  kernel_->forward(context.input(0), context.input(1), context.input(2), {}, context.output(0),
                   context.saved(lse_), context.workspace(scratch_));
}

void SelfAttention::backward(BackwardContext& context) {
  const TensorView q = context.input(0), spare = context.workspace(gradients_);
  // The kernel writes all three gradients and adds to none: a sink that accumulates, or is empty, gets a
  // spare tensor.
  GradientSink sinks[3];
  TensorView written[3];
  bool direct[3];
  for (int i = 0; i < 3; ++i) {
    sinks[i] = context.input_gradient(i);
    direct[i] = !sinks[i].view.empty() && !sinks[i].accumulate;
    written[i] = direct[i] ? sinks[i].view
                           : window(spare, static_cast<std::size_t>(i) * window_bytes(q.dtype, q.elements()),
                                    q.dtype, q.shape);
  }
  kernel_->backward(q, context.input(1), context.input(2), {}, context.output(0), context.saved(lse_),
                    context.output_gradient(0), written[0], written[1], written[2],
                    context.workspace(scratch_));
  for (int i = 0; i < 3; ++i) {
    if (!direct[i]) pass_on(*device_, *elementwise_, written[i], sinks[i]);
  }
}

}  // namespace tenon::nn
