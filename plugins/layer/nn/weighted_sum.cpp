// A loss that this layer writes out as a sum has the same bits here.
#include "weighted_sum.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::nn {

void WeightedSum::infer(InferContext& context) {
  const Layout values = expect_parts(context, 0);
  for (int i = 1; i < context.inputs(); ++i) {
    const bool integers = context.input(i).dtype == DType::kI32;
    int& taken = integers ? mask_ : weights_;
    if (taken >= 0) {
      refuse(context, fmt::format("inputs {} and {} are both {}; expected one mask (i32) and one tensor of "
                                  "weights (real) at most",
                                  taken, i, integers ? "i32" : "real"));
    }
    taken = i;
    const Layout other = expect_parts(context, i);
    if (!(other == values)) {
      refuse(context, fmt::format("expected the {} like the values, one for each, found values {} and {}",
                                  integers ? "mask" : "weights", layout_text(values), layout_text(other)));
    }
    context.keep_input(i);
  }
  if (weights_ >= 0) context.keep_input(0);  // for their gradient
  device_ = &context.device();
  terms_.infer(context, values);
}

std::span<const std::int32_t> WeightedSum::mask(RunContext& context) {
  if (mask_ < 0) return {};
  return mask_stage_.read(*device_, context.input(mask_)).span<std::int32_t>();
}

void WeightedSum::forward(ForwardContext& context) {
  terms_.read(context, 0, values_);
  if (weights_ >= 0) terms_.read(context, weights_, factors_);
  const auto counts = mask(context);
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const bool counts_here = counts.empty() || counts[i] >= 0;
    counted += counts_here ? 1 : 0;
    const double weight = weights_ >= 0 ? factors_[i] : 1;
    values_[i] = counts_here ? scale_ * values_[i] * weight : 0;
  }
  terms_.write(context, values_, static_cast<double>(counted));
}

void WeightedSum::backward(BackwardContext& context) {
  const auto counts = mask(context);
  const auto pass = [&](int input, int other) {
    const GradientSink sink = context.input_gradient(input);
    if (sink.view.empty()) return;
    values_.assign(static_cast<std::size_t>(terms_.count()), 1.0);
    if (other >= 0) terms_.read(context, other, values_);
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = counts.empty() || counts[i] >= 0 ? seed() * scale_ * values_[i] : 0;
    terms_.pass(context, values_, sink);
  };
  pass(0, weights_);
  if (weights_ >= 0) pass(weights_, 0);
}

}  // namespace tenon::nn
