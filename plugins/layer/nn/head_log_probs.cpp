// Layer `head_log_probs`: the cross-entropy of a row is minus the log-probability of its id, and so are their
// gradients.
#include "head_log_probs.hpp"

namespace tenon::nn {

void HeadLogProbs::infer(InferContext& context) {
  const Layout counted = expect_targets(context, "x");
  positionwise_ = rows_are_positions(context.input(0).shape);
  head_.infer(context, options_, counted, true);
  elementwise_ = &context.device().family<Elementwise>();
  losses_ = context.workspace(window_bytes(head_.type(), head_.rows()));
  context.output({context.input(1).shape, head_.type(), counted});
}

void HeadLogProbs::forward(ForwardContext& context) {
  const TensorView losses = window(context.workspace(losses_), 0, head_.type(), {head_.rows()}),
                   y = flat(context.output(0));
  if (y.empty()) return;
  head_.forward(context, 0, losses);
  elementwise_->fill(y, 0);  // 0 - 0 is 0, where a product with -1 were -0
  elementwise_->axpy(-1, losses, y);
}

void HeadLogProbs::backward(BackwardContext& context) {
  head_.backward(context, 0, -1, flat(context.output_gradient(0)));
}

}  // namespace tenon::nn
