// Layer `attention`: passes q, k, v to the kernel that the device prepared, and keeps what its backward
// reads. Document numbers are checked here, on the host, since every device needs them in order.
#include "attention.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::nn {

void SelfAttention::infer(InferContext& context) {
  const Shape q = context.input(0).shape;
  const std::int64_t heads = options_.integer("heads"), asked = options_.integer("kv_heads");
  const std::int64_t kv_heads = asked == 0 ? heads : asked;
  if (heads % kv_heads != 0) {
    refuse(context,
           fmt::format("option 'kv_heads' is {}; expected a divisor of the {} heads, or 0 for as many",
                       kv_heads, heads));
  }
  for (int i = 1; i < 3 && kv_heads == heads; ++i) {
    const Shape other = context.input(i).shape;
    if (!(other == q))
      refuse(context, "expected q, k, v of equal shape, found " + q.text() + " and " + other.text());
  }
  if (q[2] % heads != 0) {
    refuse(context,
           fmt::format("expected a width that is a multiple of {} heads, found {}", heads, q.text()));
  }
  const std::int64_t head_width = q[2] / heads;
  const Shape keys = with_columns(q, kv_heads * head_width);
  for (int i = 1; i < 3; ++i) {
    const Shape other = context.input(i).shape;
    if (!(other == keys)) {
      refuse(context, fmt::format("expected {} of {}, which is {} heads (option 'kv_heads') as wide as the "
                                  "{} of q {}, found {}",
                                  i == 1 ? "k" : "v", keys.text(), kv_heads, heads, q.text(), other.text()));
    }
  }
  packed_ = context.inputs() > 3;
  if (packed_) {
    const Shape documents = context.input(3).shape, expected{q[0], q[1]};
    if (!(documents == expected)) {
      refuse(context, fmt::format("expected documents of {}, a number per position of q {}, found {}",
                                  expected.text(), q.text(), documents.text()));
    }
    context.keep_input(3);
  }
  name_ = context.name();
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  spec_ = {.batch = q[0],
           .time = q[1],
           .heads = heads,
           .head_width = head_width,
           .kv_heads = kv_heads,
           .window = options_.integer("window"),
           .logit_scale = options_.boolean("scaled") ? 1.0 / std::sqrt(static_cast<double>(head_width)) : 1.0,
           .dtype = context.activations()};
  kernel_ = device_->family<Attention>().prepare(spec_);
  lse_ = context.saved({{q[0], heads, q[1]}, statistics(context.activations())});
  scratch_ = context.workspace(kernel_->scratch_bytes());
  gradients_ = context.workspace(window_bytes(context.activations(), q.elements()) +
                                 2 * window_bytes(context.activations(), keys.elements()));
  for (int i = 0; i < 3; ++i) context.keep_input(i);
  context.output({q, context.activations()});
  context.keep_output(0);
}

AttentionMasks SelfAttention::masks(RunContext& context) const {
  return {.keys = {}, .documents = packed_ ? context.input(3) : TensorView{}};
}

void SelfAttention::check_documents(const TensorView& documents, std::span<const std::int64_t> counts) {
  const TensorView here = stage_.read(*device_, documents);
  const auto* const numbers = here.as<std::int32_t>();
  const std::int64_t time = here.shape[1];
  for (std::int64_t i = 1; i < here.elements(); ++i) {
    if (i % time == 0 || numbers[i] >= numbers[i - 1]) continue;
    if (!counts.empty() && i % time >= counts[i / time]) continue;
    fail_run(
        fmt::format("layer '{}': the documents of sample {} go backwards at position {}: {} follows {}; "
                    "number the documents of a row in ascending order",
                    name_, i / time, i % time, numbers[i], numbers[i - 1]));
  }
}

void SelfAttention::forward(ForwardContext& context) {
  if (packed_) check_documents(context.input(3), {});
  kernel_->forward(context.input(0), context.input(1), context.input(2), masks(context), context.output(0),
                   context.saved(lse_), context.workspace(scratch_));
}

std::int64_t SelfAttention::infer_step(InferContext& context, std::int64_t positions) {
  cached_ = device_->family<Attention>().prepare_cached({.batch = spec_.batch,
                                                         .time = spec_.time,
                                                         .heads = spec_.heads,
                                                         .head_width = spec_.head_width,
                                                         .kv_heads = spec_.kv_heads,
                                                         .positions = positions,
                                                         .window = spec_.window,
                                                         .logit_scale = spec_.logit_scale,
                                                         .dtype = spec_.dtype,
                                                         .documents = packed_});
  step_scratch_ = context.workspace(cached_->scratch_bytes());
  return cached_->sequence_bytes();
}

void SelfAttention::step(ForwardContext& context, const Steps& steps) {
  if (packed_) check_documents(context.input(3), steps.count);
  cached_->forward(context.input(0), context.input(1), context.input(2), masks(context).documents,
                   {steps.first, steps.count, steps.kept}, steps.state, context.output(0),
                   context.workspace(step_scratch_));
}

void SelfAttention::backward(BackwardContext& context) {
  const TensorView spare = context.workspace(gradients_);
  // The kernel writes all three gradients and adds to none: a sink that accumulates, or is empty, gets a
  // spare tensor.
  GradientSink sinks[3];
  TensorView written[3];
  bool direct[3];
  std::size_t taken = 0;
  for (int i = 0; i < 3; ++i) {
    const TensorView x = context.input(i);
    sinks[i] = context.input_gradient(i);
    direct[i] = !sinks[i].view.empty() && !sinks[i].accumulate;
    written[i] = direct[i] ? sinks[i].view : window(spare, taken, x.dtype, x.shape);
    taken += window_bytes(x.dtype, x.elements());
  }
  kernel_->backward(context.input(0), context.input(1), context.input(2), masks(context), context.output(0),
                    context.saved(lse_), context.output_gradient(0), written[0], written[1], written[2],
                    context.workspace(scratch_));
  for (int i = 0; i < 3; ++i) {
    if (!direct[i]) pass_on(*device_, *elementwise_, written[i], sinks[i]);
  }
}

}  // namespace tenon::nn
