// Checks and host copies of this plugin's layers.
#include "common.hpp"

#include <fmt/format.h>

namespace tenon::recsys {

void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

void LabelledLogits::infer(InferContext& context) {
  const ValueSpec logits = context.input(0), labels = context.input(1);
  if (logits.shape.elements() != logits.shape[0])
    refuse(context, "expected logits [batch] or [batch, 1], found " + logits.shape.text());
  if (labels.shape.elements() != logits.shape[0]) {
    refuse(context, fmt::format("expected one label for each of the logits {}, found {}", logits.shape.text(),
                                labels.shape.text()));
  }
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  const std::size_t samples = logits.shape[0];
  wide_ = context.workspace(samples * sizeof(double));
  logits_.resize(samples);
  labels_.resize(samples);
}

void LabelledLogits::read(RunContext& context) {
  const TensorView logits = context.input(0), labels = context.input(1);
  const Shape shape{logits.elements()};
  const TensorView bytes = context.workspace(wide_), wide{bytes.data, shape, DType::kF64, bytes.space};
  elementwise_->convert(logits.reshaped(shape), wide);
  device_->copy(wide, {logits_.data(), shape, DType::kF64, MemorySpace::kHost});
  device_->copy(labels.reshaped(shape), {labels_.data(), shape, DType::kI32, MemorySpace::kHost});
  device_->synchronize();
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i] > 1) {
      fail_run(
          fmt::format("label {} of sample {} of the batch; expected 0, 1, or -1 for one that does not count",
                      labels_[i], i));
    }
  }
}

}  // namespace tenon::recsys
