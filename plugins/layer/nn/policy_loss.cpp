// Layer `policy_loss`: ratios are of f64, so equal log-probabilities give a ratio of exactly 1.
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
  device_ = &context.device();
  host_terms_.infer(context, values);
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
  host_terms_.read(context, input, to);
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

void PolicyLoss::forward(ForwardContext& context) {
  read(context);
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < ratios_.size(); ++i) {
    counted += counts_[i] ? 1 : 0;
    const double bounded = std::clamp(ratios_[i], 1 - clip_, 1 + clip_);
    terms_[i] = counts_[i] ? -std::min(ratios_[i] * advantages_[i], bounded * advantages_[i]) : 0;
  }
  host_terms_.write(context, terms_, static_cast<double>(counted));
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
      terms_[i] = counts_[i] ? -seed() * slope : 0;
    }
    host_terms_.pass(context, terms_, sink);
  }
}

}  // namespace tenon::nn
