// Sums over samples are taken in the order given: callers that sort first get the same bits however the
// samples came.
#include "ctr_statistics.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::recsys {
namespace {

double count(std::span<const double> scores) {
  return static_cast<double>(scores.size());
}

}  // namespace

double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double odds = std::exp(x);
  return odds / (1 + odds);
}

double log_loss(double x, bool positive) {
  return std::max(positive ? -x : x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

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

double area_under_curve(std::span<const double> positives, std::span<const double> negatives) {
  return static_cast<double>(twice_ordered_pairs(positives, negatives)) /
         (2 * count(positives) * count(negatives));
}

double normalised_entropy(std::span<const double> positives, std::span<const double> negatives) {
  double loss = 0;
  for (const double score : positives) loss += log_loss(score, true);
  for (const double score : negatives) loss += log_loss(score, false);
  const double samples = count(positives) + count(negatives), rate = count(positives) / samples;
  return loss / samples / -(rate * std::log(rate) + (1 - rate) * std::log1p(-rate));
}

double calibration(std::span<const double> positives, std::span<const double> negatives) {
  double predicted = 0;
  for (const auto& scores : {positives, negatives})
    for (const double score : scores) predicted += sigmoid(score);
  return predicted / count(positives);
}

}  // namespace tenon::recsys
