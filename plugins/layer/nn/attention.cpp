// Layer `attention`: passes q, k, v to the kernel that the device prepared, and keeps what its backward
// reads. Where heads are shards over a mesh, a rank computes its own as a whole layer with fewer heads.
#include "attention.hpp"

#include "layer_common/documents.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::nn {

Layout SelfAttention::expect_heads(InferContext& context, std::int64_t heads, std::int64_t kv_heads) {
  const Layout layout = expect_parts(context, 0);
  const Shape q = layout.shape;
  if (heads % kv_heads != 0) {
    refuse(context,
           fmt::format("option 'kv_heads' is {}; expected a divisor of the {} heads, or 0 for as many",
                       kv_heads, heads));
  }
  for (int i = 1; i < 3 && kv_heads == heads; ++i) {
    const Shape other = expect_parts(context, i).shape;
    if (!(other == q))
      refuse(context, "expected q, k, v of equal shape, found " + q.text() + " and " + other.text());
  }
  if (q[2] % heads != 0) {
    refuse(context,
           fmt::format("expected a width that is a multiple of {} heads, found {}", heads, q.text()));
  }
  const Shape keys = with_columns(q, kv_heads * (q[2] / heads));
  for (int i = 1; i < 3; ++i) {
    const Shape other = expect_parts(context, i).shape;
    if (!(other == keys)) {
      refuse(context, fmt::format("expected {} of {}, which is {} heads (option 'kv_heads') as wide as the "
                                  "{} of q {}, found {}",
                                  i == 1 ? "k" : "v", keys.text(), kv_heads, heads, q.text(), other.text()));
    }
  }
  if (sharding_of(layout, 1) != nullptr) {
    refuse(context, "q must have whole sequences on every rank, found " + layout_text(layout) +
                        "; put a repartition before the layer that shards samples or heads instead");
  }
  for (int i = 1; i < 3; ++i) expect_shards_of_heads(context, layout, i, heads, kv_heads);
  return layout;
}

void SelfAttention::expect_shards_of_heads(InferContext& context, const Layout& q, int input,
                                           std::int64_t heads, std::int64_t kv_heads) {
  const Layout keys = expect_parts(context, input);
  const char* const name = input == 1 ? "k" : "v";
  Layout expected = q;
  expected.shape[2] = keys.shape[2];
  const std::int64_t head_width = q.shape[2] / heads, shared = heads / kv_heads;
  for (DimSharding& sharding : expected.sharding) {
    if (sharding.dim != 2) continue;
    for (std::int64_t& offset : sharding.offsets) {
      if (offset % (head_width * shared) != 0) {
        const std::size_t parts = sharding.offsets.size() - 1;
        refuse(context,
               fmt::format("{} heads of q with {} heads of k and v do not divide over {} ranks: a rank must "
                           "have whole heads of k and v with all the heads of q that read them, found q of "
                           "{}; share them over axes whose ranks divide option 'kv_heads', or put "
                           "repartitions of q, k and v before the layer",
                           heads, kv_heads, parts, layout_text(q)));
      }
      offset /= shared;
    }
  }
  if (keys == expected) return;
  refuse(context, fmt::format("{} must be sharded as q is, which is {}, found {}; expected {}", name,
                              layout_text(q), layout_text(keys), layout_text(expected)));
}

void SelfAttention::expect_documents(InferContext& context, const Layout& q) {
  packed_ = context.inputs() > 3;
  if (!packed_) return;
  const Layout documents = expect_parts(context, 3);
  Layout expected{{q.shape[0], q.shape[1]}};
  if (!(documents.shape == expected.shape)) {
    refuse(context, fmt::format("expected documents of {}, a number per position of q {}, found {}",
                                expected.shape.text(), q.shape.text(), documents.shape.text()));
  }
  if (const DimSharding* samples = sharding_of(q, 0)) expected.sharding.push_back(*samples);
  if (!(documents == expected)) {
    refuse(context, fmt::format("the documents must be sharded as the samples of q are, found {}, and q of "
                                "{}; put a repartition before one",
                                layout_text(documents), layout_text(q)));
  }
  context.keep_input(3);
}

void SelfAttention::infer(InferContext& context) {
  const std::int64_t heads = options_.integer("heads"), asked = options_.integer("kv_heads");
  const std::int64_t kv_heads = asked == 0 ? heads : asked;
  const Layout layout = expect_heads(context, heads, kv_heads);
  // Shards of a rank are whole heads, so it computes as one rank does with fewer heads.
  const Shape q = context.input(0).shape, keys = context.input(1).shape;
  const std::int64_t head_width = layout.shape[2] / heads;
  expect_documents(context, layout);
  name_ = context.name();
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  spec_ = {.batch = q[0],
           .time = q[1],
           .heads = q[2] / head_width,
           .head_width = head_width,
           .kv_heads = keys[2] / head_width,
           .window = options_.integer("window"),
           .logit_scale = options_.boolean("scaled") ? 1.0 / std::sqrt(static_cast<double>(head_width)) : 1.0,
           .dtype = context.activations()};
  context.output(placed(context, layout));
  if (q.elements() == 0) return;  // neither samples nor heads are here
  kernel_ = device_->family<Attention>().prepare(spec_);
  lse_ = context.saved({{q[0], spec_.heads, q[1]}, statistics(context.activations())});
  scratch_ = context.workspace(kernel_->scratch_bytes());
  gradients_ = context.workspace(window_bytes(context.activations(), q.elements()) +
                                 2 * window_bytes(context.activations(), keys.elements()));
  for (int i = 0; i < 3; ++i) context.keep_input(i);
  context.keep_output(0);
}

AttentionMasks SelfAttention::masks(RunContext& context) const {
  return {.keys = {}, .documents = packed_ ? context.input(3) : TensorView{}};
}

void SelfAttention::forward(ForwardContext& context) {
  if (kernel_ == nullptr) return;
  if (packed_) layer_common::check_documents(name_, *device_, stage_, context.input(3), {});
  kernel_->forward(context.input(0), context.input(1), context.input(2), masks(context), context.output(0),
                   context.saved(lse_), context.workspace(scratch_));
}

std::int64_t SelfAttention::infer_step(InferContext& context, std::int64_t positions) {
  if (kernel_ == nullptr) return 0;
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
  if (cached_ == nullptr) return;
  if (packed_) layer_common::check_documents(name_, *device_, stage_, context.input(3), steps.count);
  cached_->forward(context.input(0), context.input(1), context.input(2), masks(context).documents,
                   {steps.first, steps.count, steps.kept}, steps.state, context.output(0),
                   context.workspace(step_scratch_));
}

void SelfAttention::backward(BackwardContext& context) {
  if (kernel_ == nullptr) return;
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
