// Loss and metrics of click-through predictions, on the host and in float64.
#include "ctr.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace tenon::recsys {
namespace {

// Statistics of click-through predictions as plain functions of numbers; the layers collect and report.
// A score is a logit x, the predicted probability is sigmoid(x).
// Sums over samples are taken in the order given: callers that sort first get the same bits however the
// samples came.

double count(std::span<const double> scores) {
  return static_cast<double>(scores.size());
}

/// 1 / (1 + exp(-x)) without overflow.
double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double odds = std::exp(x);
  return odds / (1 + odds);
}

/// -log of the probability that sigmoid(x) gives to the label.
double log_loss(double x, bool positive) {
  return std::max(positive ? -x : x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

/// Twice the number of pairs of a positive and a negative in which the positive has the greater score, ties
/// counting one half: the Mann-Whitney statistic as an integer. Both ascending; exact below 2^63 pairs.
std::uint64_t twice_ordered_pairs(std::span<const double> positives, std::span<const double> negatives) {
  std::uint64_t twice = 0;
  std::size_t below = 0, not_above = 0;  // negatives below, and not above, the positive at hand
  for (const double score : positives) {
    while (below < negatives.size() && negatives[below] < score) ++below;
    while (not_above < negatives.size() && negatives[not_above] <= score) ++not_above;
    twice += below + not_above;
  }
  return twice;
}

/// Area under the ROC curve; needs one sample of each class.
double area_under_curve(std::span<const double> positives, std::span<const double> negatives) {
  return static_cast<double>(twice_ordered_pairs(positives, negatives)) /
         (2 * count(positives) * count(negatives));
}

/// Mean log loss over the entropy of the base rate (He et al. 2014, "Practical lessons from predicting clicks
/// on ads at Facebook", 3); needs one sample of each class. Below 1: better than always predicting the base
/// rate.
double normalised_entropy(std::span<const double> positives, std::span<const double> negatives) {
  double loss = 0;
  for (const double score : positives) loss += log_loss(score, true);
  for (const double score : negatives) loss += log_loss(score, false);
  const double samples = count(positives) + count(negatives), rate = count(positives) / samples;
  return loss / samples / -(rate * std::log(rate) + (1 - rate) * std::log1p(-rate));
}

/// Sum of the predicted probabilities over the number of positives (ibid.); needs a positive.
double calibration(std::span<const double> positives, std::span<const double> negatives) {
  double predicted = 0;
  for (const auto& scores : {positives, negatives})
    for (const double score : scores) predicted += sigmoid(score);
  return predicted / count(positives);
}

}  // namespace

// Layer `bce_with_logits`: losses and gradients on the host, in float64, samples in order.

void BceWithLogits::infer(InferContext& context) {
  samples_.infer(context);
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  const std::size_t samples = samples_.logits().size();
  gradient_.resize(samples);
  wide_ = context.workspace(samples * sizeof(double));
  narrow_ = context.workspace(dtype_bytes(context.activations(), static_cast<std::int64_t>(samples)));
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
                   : label == 1 ? -seed() * sigmoid(-samples_.logits()[i])
                                : seed() * sigmoid(samples_.logits()[i]);
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

// Layer `ctr_metrics`: collected scores are sorted before anything is summed, so the values depend neither on
// the order of the samples nor on their split among batches and replicas.

void CtrMetrics::begin() {
  positives_.clear();
  negatives_.clear();
  not_finite_ = 0;
  collecting_ = true;
}

void CtrMetrics::forward(ForwardContext& context) {
  if (!collecting_ || context.training()) return;
  samples_.read(context);
  for (std::size_t i = 0; i < samples_.labels().size(); ++i) {
    const std::int32_t label = samples_.labels()[i];
    if (label < 0) continue;
    const double score = samples_.logits()[i];
    if (!std::isfinite(score)) ++not_finite_;
    (label == 1 ? positives_ : negatives_).push_back(score);
  }
}

void CtrMetrics::join(Communicator& replicas) {
  const std::int64_t size = replicas.size();
  const std::size_t rank = replicas.rank();
  std::vector<std::int64_t> counts(3 * size);
  counts[3 * rank] = static_cast<std::int64_t>(positives_.size());
  counts[3 * rank + 1] = static_cast<std::int64_t>(negatives_.size());
  counts[3 * rank + 2] = not_finite_;
  replicas.all_gather({counts.data(), {size, 3}, DType::kI64, MemorySpace::kHost});
  std::int64_t most = 0;
  for (std::size_t i = 0; i < counts.size(); i += 3) most = std::max(most, counts[i] + counts[i + 1]);
  if (most == 0) return;

  std::vector<double> scores(size * most);
  auto mine = scores.begin() + static_cast<std::ptrdiff_t>(rank) * most;
  std::copy(negatives_.begin(), negatives_.end(), std::copy(positives_.begin(), positives_.end(), mine));
  replicas.all_gather({scores.data(), {size, most}, DType::kF64, MemorySpace::kHost});
  positives_.clear();
  negatives_.clear();
  not_finite_ = 0;
  auto from = scores.begin();
  for (std::size_t i = 0; i < counts.size(); i += 3, from += most) {
    const auto middle = from + counts[i];
    positives_.insert(positives_.end(), from, middle);
    negatives_.insert(negatives_.end(), middle, middle + counts[i + 1]);
    not_finite_ += counts[i + 2];
  }
}

void CtrMetrics::finish(Communicator* replicas, MetricReport& report) {
  collecting_ = false;
  if (replicas != nullptr) join(*replicas);
  const auto name = [&](const char* metric) {
    return prefix_.empty() ? std::string(metric) : fmt::format("{}_{}", prefix_, metric);
  };
  const std::size_t samples = positives_.size() + negatives_.size();
  std::string reason;
  if (samples == 0) reason = "no sample with a label was evaluated";
  if (not_finite_ > 0) reason = fmt::format("{} of {} scores are not finite", not_finite_, samples);
  if (!reason.empty()) {
    for (const char* metric : {"auc", "normalised_entropy", "calibration"})
      report.undefined(name(metric), reason);
    return;
  }
  std::sort(positives_.begin(), positives_.end());
  std::sort(negatives_.begin(), negatives_.end());
  if (positives_.empty() || negatives_.empty()) {
    reason = fmt::format("all {} labels are {}", samples, positives_.empty() ? 0 : 1);
    report.undefined(name("auc"), reason);
    report.undefined(name("normalised_entropy"), reason);
  } else {
    report.value(name("auc"), area_under_curve(positives_, negatives_));
    report.value(name("normalised_entropy"), normalised_entropy(positives_, negatives_));
  }
  if (positives_.empty())
    report.undefined(name("calibration"), reason);
  else
    report.value(name("calibration"), calibration(positives_, negatives_));
}

}  // namespace tenon::recsys
