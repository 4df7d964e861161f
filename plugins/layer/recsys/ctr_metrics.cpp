// Layer `ctr_metrics`: collected scores are sorted before anything is summed, so the values depend neither on
// the order of the samples nor on their split among batches and replicas.
#include "ctr_metrics.hpp"

#include "ctr_statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::recsys {

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
  const auto rank = static_cast<std::size_t>(replicas.rank());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(3 * size));
  counts[3 * rank] = static_cast<std::int64_t>(positives_.size());
  counts[3 * rank + 1] = static_cast<std::int64_t>(negatives_.size());
  counts[3 * rank + 2] = not_finite_;
  replicas.all_gather({counts.data(), {size, 3}, DType::kI64, MemorySpace::kHost});
  std::int64_t most = 0;
  for (std::size_t i = 0; i < counts.size(); i += 3) most = std::max(most, counts[i] + counts[i + 1]);
  if (most == 0) return;

  std::vector<double> scores(static_cast<std::size_t>(size * most));
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
