// Checks and host copies of this plugin's layers.
#include "common.hpp"

#include <fmt/format.h>

namespace tenon::recsys {

void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

void expect_inputs(const InferContext& context, int count) {
  if (context.inputs() != count)
    refuse(context, fmt::format("expected {} inputs, found {}", count, context.inputs()));
}

Shape expect_activation(const InferContext& context, int index, int rank, const char* means) {
  const ValueSpec spec = context.input(index);
  if (spec.dtype != context.activations() || spec.shape.rank() != rank) {
    refuse(context,
           fmt::format("expected input {} to be {} in {}, found {} {}", index, means,
                       dtype_name(context.activations()), dtype_name(spec.dtype), spec.shape.text()));
  }
  return spec.shape;
}

void LabelledLogits::infer(InferContext& context) {
  expect_inputs(context, 2);
  const ValueSpec logits = context.input(0), labels = context.input(1);
  const int rank = logits.shape.rank();
  if (logits.dtype != context.activations() || rank < 1 || logits.shape.elements() != logits.shape[0]) {
    refuse(context,
           fmt::format("expected input 0 to be logits [batch] or [batch, 1] in {}, found {} {}",
                       dtype_name(context.activations()), dtype_name(logits.dtype), logits.shape.text()));
  }
  if (labels.dtype != DType::kI32 || labels.shape.elements() != logits.shape[0]) {
    refuse(context, fmt::format("expected input 1 to be one i32 label for each of the logits {}, found {} {}",
                                logits.shape.text(), dtype_name(labels.dtype), labels.shape.text()));
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
