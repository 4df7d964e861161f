// Layer `weighted_sum`: terms in f64, rounded once to the dtype of statistics and added as other losses are,
// so that it has the bits of a loss that it writes out.
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
  elements_ = context.input(0).shape.elements();
  type_ = statistics(context.activations());
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  reduce_ = &device_->family<ReduceOps>();
  wide_ = context.workspace(window_bytes(DType::kF64, elements_));
  rounded_ = context.workspace(window_bytes(type_, elements_));
  narrow_ = context.workspace(window_bytes(DType::kF64, elements_));
  sum_.infer(context, values, 0);
}

const std::vector<double>& WeightedSum::real(RunContext& context, int input, std::vector<double>& to) {
  const TensorView wide = window(context.workspace(wide_), 0, DType::kF64, {elements_});
  elementwise_->convert(flat(context.input(input)), wide);
  const auto here = wide_stage_.read(*device_, wide).span<double>();
  to.assign(here.begin(), here.end());
  return to;
}

std::span<const std::int32_t> WeightedSum::mask(RunContext& context) {
  if (mask_ < 0) return {};
  return mask_stage_.read(*device_, context.input(mask_)).span<std::int32_t>();
}

TensorView WeightedSum::rounded(RunContext& context, const std::vector<double>& values) {
  const TensorView result = window(context.workspace(rounded_), 0, type_, {elements_});
  const TensorView here = rounded_stage_.room(result);
  if (type_ == DType::kF64) {
    std::copy(values.begin(), values.end(), here.as<double>());
  } else {
    std::transform(values.begin(), values.end(), here.as<float>(),
                   [](double value) { return static_cast<float>(value); });
  }
  rounded_stage_.write(*device_, result);
  return result;
}

void WeightedSum::forward(ForwardContext& context) {
  real(context, 0, values_);
  if (weights_ >= 0) real(context, weights_, factors_);
  const auto counts = mask(context);
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const bool counts_here = counts.empty() || counts[i] >= 0;
    counted += counts_here ? 1 : 0;
    const double weight = weights_ >= 0 ? factors_[i] : 1;
    values_[i] = counts_here ? scale_ * values_[i] * weight : 0;
  }
  sum_.write(reduce_->sum(rounded(context, values_)), static_cast<double>(counted), context.output(0));
}

void WeightedSum::backward(BackwardContext& context) {
  const auto counts = mask(context);
  const auto pass = [&](int input, int other) {
    const GradientSink sink = context.input_gradient(input);
    if (sink.view.empty()) return;
    values_.assign(static_cast<std::size_t>(elements_), 1.0);
    if (other >= 0) real(context, other, values_);
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = counts.empty() || counts[i] >= 0 ? seed_ * scale_ * values_[i] : 0;
    TensorView gradient = rounded(context, values_);
    if (sink.view.dtype != type_) {
      const TensorView narrow = window(context.workspace(narrow_), 0, sink.view.dtype, gradient.shape);
      elementwise_->convert(gradient, narrow);
      gradient = narrow;
    }
    pass_on(*device_, *elementwise_, gradient, sink);
  };
  pass(0, weights_);
  if (weights_ >= 0) pass(weights_, 0);
}

}  // namespace tenon::nn
