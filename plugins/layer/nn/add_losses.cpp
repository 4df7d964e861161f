// Layer `add_losses`: a few numbers on the host. Counts and balancing factors are constants of a pass.
#include "add_losses.hpp"

#include <fmt/format.h>

namespace tenon::nn {

void AddLosses::infer(InferContext& context) {
  const int parts = context.inputs();
  weights_.assign(static_cast<std::size_t>(parts), 1.0);
  if (options_.has("weights")) {
    const auto given = options_.reals("weights");
    if (given.size() != weights_.size()) {
      refuse(context, fmt::format("option 'weights' has {} numbers for {} losses; expected one for each",
                                  given.size(), parts));
    }
    weights_.assign(given.begin(), given.end());
  }
  for (int i = 0; i < parts; ++i) {
    if (!(context.input(i).shape == Shape{2})) {
      refuse(context, fmt::format("expected the outputs [2] of loss nodes, found input {} of shape {}", i,
                                  context.input(i).shape.text()));
    }
  }
  factors_.assign(weights_.size(), 0.0);
  device_ = &context.device();
  context.output({{2}, DType::kF64});
}

std::array<double, 2> AddLosses::part(RunContext& context, int input) {
  std::array<double, 2> pair{};
  device_->copy(context.input(input), {pair.data(), {2}, DType::kF64, MemorySpace::kHost});
  device_->synchronize();
  return pair;
}

void AddLosses::write(TensorView to, double first, double second) {
  double pair[2] = {first, second};
  device_->copy({pair, {2}, DType::kF64, MemorySpace::kHost}, to);
  device_->synchronize();  // `pair` ends with this call
}

void AddLosses::forward(ForwardContext& context) {
  const auto [first_sum, first_count] = part(context, 0);
  double sum = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const auto [part_sum, part_count] = part(context, static_cast<int>(i));
    // The mean of the part times the first's count, so that the mean of the result is the sum of the means.
    double factor = part_count > 0 ? weights_[i] * (first_count / part_count) : 0;
    if (balanced_ && i > 0) {
      const bool nothing = part_sum == 0 || first_count == 0;
      factor = nothing ? 0 : weights_[i] * (first_sum / part_sum);
    }
    factors_[i] = factor;
    sum += factor * part_sum;
  }
  write(context.output(0), sum, first_count);
}

void AddLosses::backward(BackwardContext& context) {
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    const GradientSink sink = context.input_gradient(static_cast<int>(i));
    if (sink.view.empty()) continue;
    std::array<double, 2> before{};
    if (sink.accumulate) {  // the same part twice
      device_->copy(sink.view, {before.data(), {2}, DType::kF64, MemorySpace::kHost});
      device_->synchronize();
    }
    write(sink.view, before[0] + seed() * factors_[i], before[1]);
  }
}

}  // namespace tenon::nn
