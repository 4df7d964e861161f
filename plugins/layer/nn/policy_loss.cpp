// Layer `policy_loss`: ratios and terms in f64, rounded once to the dtype of statistics and added as other
// losses are. Equal log-probabilities give a ratio of exactly 1.
#include "policy_loss.hpp"

#include <tenon/host.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace tenon::nn {

void PolicyLoss::infer(InferContext& context) {
  constexpr const char* kNames[] = {"log_probs", "drawn", "advantages", "targets"};
  const Layout values = expect_parts(context, 0);
  for (int i = 0; i < context.inputs(); ++i) {
    const Layout other = expect_parts(context, i);
    if (!(other == values))
      refuse(context, fmt::format("expected {} like log_probs, one for each place, found {} and {}",
                                  kNames[i], layout_text(other), layout_text(values)));
    context.keep_input(i);
  }
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

void PolicyLoss::read(RunContext& context, int input, std::vector<double>& to) {
  const TensorView value = flat(context.input(input));
  if (value.dtype == DType::kI64) {
    const auto bits = stage_.read(*device_, value).span<std::int64_t>();
    to.resize(bits.size());
    std::transform(bits.begin(), bits.end(), to.begin(),
                   [](std::int64_t word) { return std::bit_cast<double>(word); });
    return;
  }
  const TensorView wide = window(context.workspace(wide_), 0, DType::kF64, {elements_});
  elementwise_->convert(value, wide);
  const auto here = stage_.read(*device_, wide).span<double>();
  to.assign(here.begin(), here.end());
}

void PolicyLoss::read(RunContext& context) {
  read(context, 0, ratios_);
  read(context, 1, terms_);
  read(context, 2, advantages_);
  const auto targets = targets_stage_.read(*device_, context.input(3)).span<std::int32_t>();
  counts_.resize(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    counts_[i] = targets[i] >= 0;
    ratios_[i] = counts_[i] ? std::exp(ratios_[i] - terms_[i]) : 1;
  }
}

TensorView PolicyLoss::rounded(RunContext& context, const std::vector<double>& values) {
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

void PolicyLoss::forward(ForwardContext& context) {
  read(context);
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < ratios_.size(); ++i) {
    counted += counts_[i] ? 1 : 0;
    const double bounded = std::clamp(ratios_[i], 1 - clip_, 1 + clip_);
    terms_[i] = counts_[i] ? -std::min(ratios_[i] * advantages_[i], bounded * advantages_[i]) : 0;
  }
  sum_.write(reduce_->sum(rounded(context, terms_)), static_cast<double>(counted), context.output(0));
}

void PolicyLoss::record(RunContext& context) {
  const std::pair now{context.step(), context.micro()};
  if (std::exchange(recorded_, now) == now) return;  // a repeated slot
  double sum = 0, most = 0;
  std::int64_t counted = 0, clipped = 0;
  for (std::size_t i = 0; i < ratios_.size(); ++i) {
    if (!counts_[i]) continue;
    const double distance = std::abs(ratios_[i] - 1);
    ++counted;
    clipped += distance > clip_ ? 1 : 0;
    sum += distance;
    most = std::max(most, distance);
  }
  if (counted == 0 || !std::isfinite(sum)) return;
  record_metric(host_, "clip_share", static_cast<double>(clipped) / static_cast<double>(counted));
  record_metric(host_, "ratio_change", sum / static_cast<double>(counted));
  record_metric(host_, "ratio_change_most", most);
}

// d rho = rho d log_probs = -rho d drawn, where the bounded ratio is not the smaller term.
void PolicyLoss::backward(BackwardContext& context) {
  read(context);
  record(context);
  const auto bounded = [&](std::size_t i) {
    return advantages_[i] > 0 ? ratios_[i] > 1 + clip_ : ratios_[i] < 1 - clip_;
  };
  for (int input = 0; input < 3; ++input) {
    const GradientSink sink = context.input_gradient(input);
    if (sink.view.empty()) continue;
    for (std::size_t i = 0; i < ratios_.size(); ++i) {
      const double of_ratio = bounded(i) ? 0 : ratios_[i] * advantages_[i];
      const double of_advantage = bounded(i) ? std::clamp(ratios_[i], 1 - clip_, 1 + clip_) : ratios_[i];
      const double slope = input == 0 ? of_ratio : input == 1 ? -of_ratio : of_advantage;
      terms_[i] = counts_[i] ? -seed_ * slope : 0;
    }
    pass(context, sink);
  }
}

void PolicyLoss::pass(RunContext& context, const GradientSink& sink) {
  TensorView gradient = rounded(context, terms_);
  if (sink.view.dtype != type_) {
    const TensorView narrow = window(context.workspace(narrow_), 0, sink.view.dtype, gradient.shape);
    elementwise_->convert(gradient, narrow);
    gradient = narrow;
  }
  pass_on(*device_, *elementwise_, gradient, sink);
}

}  // namespace tenon::nn
