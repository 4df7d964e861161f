// Layer `accuracy`: the host compares logits, which are few beside the values they come from.
#include "accuracy.hpp"

#include <algorithm>

namespace tenon::nn {

void Accuracy::infer(InferContext& context) {
  expect_inputs(context, 2);
  const Layout counted = expect_targets(context, "logits");
  const Shape logits = context.input(0).shape;
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  wide_ = context.workspace(window_bytes(DType::kF64, logits.elements()));
  logits_.resize(static_cast<std::size_t>(logits.elements()));
  targets_.resize(static_cast<std::size_t>(rows_of(logits)));
  sum_.infer(context, counted, 0);
}

void Accuracy::forward(ForwardContext& context) {
  const TensorView logits = flat(context.input(0)), targets = flat(context.input(1));
  const TensorView wide = window(context.workspace(wide_), 0, DType::kF64, logits.shape);
  elementwise_->convert(logits, wide);
  device_->copy(wide, {logits_.data(), logits.shape, DType::kF64, MemorySpace::kHost});
  device_->copy(targets, {targets_.data(), targets.shape, DType::kI32, MemorySpace::kHost});
  device_->synchronize();
  const std::size_t columns = logits_.size() / std::max<std::size_t>(1, targets_.size());
  std::int64_t counted = 0, right = 0;
  for (std::size_t row = 0; row < targets_.size(); ++row) {
    if (targets_[row] < 0) continue;
    const auto begin = logits_.begin() + static_cast<std::ptrdiff_t>(row * columns);
    const auto greatest = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(columns)) - begin;
    ++counted;
    right += greatest == targets_[row] ? 1 : 0;
  }
  sum_.write(static_cast<double>(right), static_cast<double>(counted), context.output(0));
}

}  // namespace tenon::nn
