// Statistics of click-through predictions as plain functions of numbers; the layers collect and report.
// A score is a logit x, the predicted probability is sigmoid(x).
#pragma once

#include <cstdint>
#include <span>

namespace tenon::recsys {

/// 1 / (1 + exp(-x)) without overflow.
double sigmoid(double x);
/// -log of the probability that sigmoid(x) gives to the label.
double log_loss(double x, bool positive);

/// Twice the number of pairs of a positive and a negative in which the positive has the greater score, ties
/// counting one half: the Mann-Whitney statistic as an integer. Both ascending; exact below 2^63 pairs.
std::uint64_t twice_ordered_pairs(std::span<const double> positives, std::span<const double> negatives);
/// Area under the ROC curve; needs one sample of each class.
double area_under_curve(std::span<const double> positives, std::span<const double> negatives);
/// Mean log loss over the entropy of the base rate (He et al. 2014, "Practical lessons from predicting clicks
/// on ads at Facebook", 3); needs one sample of each class. Below 1: better than always predicting the base
/// rate.
double normalised_entropy(std::span<const double> positives, std::span<const double> negatives);
/// Sum of the predicted probabilities over the number of positives (ibid.); needs a positive.
double calibration(std::span<const double> positives, std::span<const double> negatives);

}  // namespace tenon::recsys
