// Sum and count of a loss. Counting happens on the host: targets are few beside logits.
#include "loss_sum.hpp"

#include <algorithm>

namespace tenon::nn {

void LossSum::infer(InferContext& context, std::int64_t rows) {
  device_ = &context.device();
  reduce_ = &device_->family<ReduceOps>();
  if (device_->space() != MemorySpace::kHost) staging_.resize(static_cast<std::size_t>(rows));
  context.output({{2}, DType::kF64});
}

void LossSum::write(TensorView losses, TensorView targets, TensorView output) {
  std::span<const std::int32_t> ids = targets.span<std::int32_t>();
  if (targets.space != MemorySpace::kHost) {
    ids = {staging_.data(), ids.size()};
    device_->copy(targets, {staging_.data(), targets.shape, DType::kI32, MemorySpace::kHost});
    device_->synchronize();
  }
  const auto counted = std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; });
  write(reduce_->sum(losses), static_cast<double>(counted), output);
}

void LossSum::write(double sum, double count, TensorView output) {
  double result[2] = {sum, count};
  device_->copy({result, {2}, DType::kF64, MemorySpace::kHost}, output);
  device_->synchronize();  // `result` ends with this call
}

}  // namespace tenon::nn
