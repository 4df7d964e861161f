// Pools: the exchange, then one operator of the device, each way.
#include "pool.hpp"

#include <fmt/format.h>

namespace tenon::distdl {

void Pool::infer(InferContext& context) {
  const ValueSpec x = expect_summed(context);
  windows_.infer(context, options_, x);
  for (int d = 0; d < windows_.spatial(); ++d) {
    const WindowSpec& window = windows_.global();
    if (2 * window.pad_low[d] > window.kernel[d])
      refuse(context, fmt::format("padding {} is more than half of the kernel {}", window.pad_low[d],
                                  window.kernel[d]));
  }
  dtype_ = x.dtype;
  ops_ = &context.device().family<WindowOps>();
  window_ = context.workspace(dtype_bytes(dtype_, windows_.window_shape().elements()));
  const Layout y = windows_.output_layout(x.layout.shape[1]);
  y_ = part_of(y, context.mesh().place()).extents;
  context.output({y_, dtype_, y});
}

TensorView Pool::scratch(RunContext& context) const {
  return tensor(context.workspace(window_), dtype_, windows_.window_shape());
}

void MaxPool::infer(InferContext& context) {
  Pool::infer(context);
  index_ = context.saved({y_, DType::kI32});
}

void MaxPool::forward(ForwardContext& context) {
  const TensorView window = scratch(context);
  windows_.fetch(context.input(0), window, Pads::kLowest);
  if (!windows_.empty()) ops_->max_pool(windows_.local(), window, context.output(0), context.saved(index_));
}

void MaxPool::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.shape.rank() == 0) return;
  const TensorView window = scratch(context);
  if (!windows_.empty()) {
    ops_->max_pool_backward(windows_.local(), context.saved(index_), context.output_gradient(0), window,
                            false);
  }
  windows_.give_back(window, dx);
}

void AveragePool::forward(ForwardContext& context) {
  const TensorView window = scratch(context);
  windows_.fetch(context.input(0), window, Pads::kZero);
  if (!windows_.empty()) ops_->average_pool(windows_.local(), window, true, context.output(0));
}

void AveragePool::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.shape.rank() == 0) return;
  const TensorView window = scratch(context);
  if (!windows_.empty())
    ops_->average_pool_backward(windows_.local(), context.output_gradient(0), true, window, false);
  windows_.give_back(window, dx);
}

}  // namespace tenon::distdl
