// Layer `bce_with_logits`: losses and gradients on the host, in float64, samples in order.
#include "bce_with_logits.hpp"

#include "ctr_statistics.hpp"

namespace tenon::recsys {

void BceWithLogits::infer(InferContext& context) {
  samples_.infer(context);
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  const std::size_t samples = samples_.logits().size();
  gradient_.resize(samples);
  wide_ = context.workspace(samples * sizeof(double));
  narrow_ = context.workspace(
      static_cast<std::size_t>(dtype_bytes(context.activations(), static_cast<std::int64_t>(samples))));
  context.keep_input(0);
  context.keep_input(1);
  context.output({{2}, DType::kF64});
}

void BceWithLogits::forward(ForwardContext& context) {
  samples_.read(context);
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < gradient_.size(); ++i) {
    if (samples_.labels()[i] < 0) continue;
    sum += log_loss(samples_.logits()[i], samples_.labels()[i] == 1);
    count += 1;
  }
  double result[2] = {sum, count};
  device_->copy({result, {2}, DType::kF64, MemorySpace::kHost}, context.output(0));
  device_->synchronize();  // `result` ends with this call
}

void BceWithLogits::backward(BackwardContext& context) {
  const GradientSink sink = context.input_gradient(0);
  if (sink.view.empty()) return;
  samples_.read(context);
  for (std::size_t i = 0; i < gradient_.size(); ++i) {
    const std::int32_t label = samples_.labels()[i];
    // sigmoid(x) - 1 = -sigmoid(-x), which loses no digits where the sigmoid is near 1.
    gradient_[i] = label < 0    ? 0.0
                   : label == 1 ? -seed_ * sigmoid(-samples_.logits()[i])
                                : seed_ * sigmoid(samples_.logits()[i]);
  }
  const Shape shape{static_cast<std::int64_t>(gradient_.size())};
  const auto place = [&](WorkspaceRef ref, DType dtype) {
    const TensorView bytes = context.workspace(ref);
    return TensorView{bytes.data, shape, dtype, bytes.space};
  };
  const TensorView wide = place(wide_, DType::kF64), out = sink.view.reshaped(shape);
  device_->copy({gradient_.data(), shape, DType::kF64, MemorySpace::kHost}, wide);
  if (!sink.accumulate) {
    elementwise_->convert(wide, out);
  } else {
    const TensorView narrow = place(narrow_, out.dtype);
    elementwise_->convert(wide, narrow);
    elementwise_->axpy(1.0, narrow, out);
  }
  device_->synchronize();
}

}  // namespace tenon::recsys
