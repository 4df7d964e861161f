// Layer `head_cross_entropy`: the losses of the rows in a workspace, and their sum.
#include "head_cross_entropy.hpp"

namespace tenon::nn {

void HeadCrossEntropy::infer(InferContext& context) {
  const Layout counted = expect_targets(context, "x");
  head_.infer(context, options_, counted, false);
  losses_ = context.workspace(window_bytes(head_.type(), head_.rows()));
  sum_.infer(context, counted, head_.rows());
}

void HeadCrossEntropy::forward(ForwardContext& context) {
  const TensorView losses = window(context.workspace(losses_), 0, head_.type(), {head_.rows()});
  head_.forward(context, smoothing_, losses);
  sum_.write(losses, flat(context.input(1)), context.output(0));
}

void HeadCrossEntropy::backward(BackwardContext& context) {
  head_.backward(context, smoothing_, seed(), {});
}

}  // namespace tenon::nn
