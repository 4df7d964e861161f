// The processes of sequential.hpp. Everything is kept as logarithms: an e-value of a clear effect leaves the
// range of doubles.
#include "ab/sequential.hpp"

#include <Random123/philox.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::ab {
namespace {

constexpr double kLargest = 1e6;       // of |d| / s: larger ones differ in nothing that a decision sees
constexpr double kFlush = 1e200;       // products beyond it become logarithms
constexpr std::uint32_t kDraws = 200;  // continuations

double log_of_sum(std::span<const double> logs) {
  const double most = *std::max_element(logs.begin(), logs.end());
  if (std::isinf(most)) return most;
  double sum = 0;
  for (const double l : logs) sum += std::exp(l - most);
  return most + std::log(sum);
}

double median_of(const std::vector<double>& ordered) {
  const std::size_t n = ordered.size();
  return n % 2 == 1 ? ordered[n / 2] : (ordered[n / 2 - 1] + ordered[n / 2]) / 2;
}

}  // namespace

std::size_t next_look(const SequentialRule& rule, std::size_t pairs) {
  return std::min(rule.max_seeds, pairs < rule.first_look ? rule.first_look : pairs + rule.block);
}

double alpha_of_arm(double alpha, std::size_t arms) {
  return alpha / static_cast<double>(arms - 1);
}

void SignEvidence::add(double difference) {
  const double size = std::abs(difference);
  const double scale = sizes_.empty() ? 0 : median_of(sizes_);
  sizes_.insert(std::upper_bound(sizes_.begin(), sizes_.end(), size), size);
  if (!(scale > 0) || size == 0) return;
  const double z = std::min(size / scale, kLargest);
  (difference > 0 ? above_ : below_) += z;
  ++counted_;
  // log cosh(a) = a + log(1 + exp(-2 a)) - log 2, and each lambda is twice the one before.
  double q = std::exp(-2 * kLambdas.front() * z);
  for (std::size_t k = 0; k < kLambdas.size(); ++k, q *= q) {
    products_[k] *= 1 + q;
    if (products_[k] < kFlush) continue;
    logs_[k] += std::log(products_[k]);
    products_[k] = 1;
  }
}

double SignEvidence::mixture(double wrong_way) const {
  std::array<double, kLambdas.size()> logs;
  for (std::size_t k = 0; k < kLambdas.size(); ++k) {
    logs[k] = static_cast<double>(counted_) * std::log(2.0) - 2 * kLambdas[k] * wrong_way -
              (logs_[k] + std::log(products_[k]));
  }
  return log_of_sum(logs) - std::log(static_cast<double>(kLambdas.size()));
}

void NormalEvidence::add(double difference) {
  ++n_;
  const double before = difference - mean_;
  mean_ += before / static_cast<double>(n_);
  squares_ += before * (difference - mean_);
}

double NormalEvidence::log_e(double centre) const {
  const double n = static_cast<double>(n_), m = mean_ - centre;
  const double all = squares_ + n * m * m;
  const double rest = squares_ + n * kPriorPairs / (n + kPriorPairs) * m * m;
  if (!(rest > 0)) return 0;
  return 0.5 * std::log(kPriorPairs / (n + kPriorPairs)) + n / 2 * std::log(all / rest);
}

// Half of the alternative, twice its weight: the share of it above the centre, given the data, is that of a
// Student t with n degrees of freedom.
double NormalEvidence::one_sided(double shift) const {
  const double n = static_cast<double>(n_);
  const double rest = squares_ + n * kPriorPairs / (n + kPriorPairs) * shift * shift;
  if (!(rest > 0)) return 0;
  const double t = n * shift / std::sqrt((n + kPriorPairs) * rest / n);
  return log_e(mean_ - shift) + std::log(2 * upper_tail(-t, n));
}

double NormalEvidence::log_above(double centre) const {
  return one_sided(mean_ - centre);
}

double NormalEvidence::log_below(double centre) const {
  return one_sided(centre - mean_);
}

Interval NormalEvidence::interval(double alpha) const {
  const double n = static_cast<double>(n_);
  const double rise = std::pow((n + kPriorPairs) / (kPriorPairs * alpha * alpha), 1 / n);
  const double room = 1 - rise * kPriorPairs / (n + kPriorPairs);
  if (n_ == 0 || !(room > 0))
    return {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  const double half = std::sqrt(squares_ * (rise - 1) / (n * room));
  return {mean_ - half, mean_ + half};
}

void EvidenceProcess::add(double difference) {
  ++pairs_;
  normal_.add(difference);
  if (method_ != SequentialMethod::kSign) return;
  sign_.add(difference);
  if (!margin_) return;
  above_.add(difference + *margin_);
  below_.add(difference - *margin_);
}

Evidence EvidenceProcess::now() const {
  Evidence out;
  out.pairs = pairs_;
  out.mean = normal_.mean();
  out.interval = normal_.interval(alpha_);
  if (method_ == SequentialMethod::kNormal) {
    out.log_e = normal_.log_e(0);
    out.greater = out.mean > 0;
    if (margin_) {
      out.log_e_above = normal_.log_above(-*margin_);
      out.log_e_below = normal_.log_below(*margin_);
    }
    return out;
  }
  // Each direction has half of alpha.
  const double greater = sign_.log_greater(), less = sign_.log_less();
  out.greater = greater > less;
  out.log_e = std::max(greater, less) - std::log(2.0);
  if (margin_) {
    out.log_e_above = above_.log_greater();
    out.log_e_below = below_.log_less();
  }
  return out;
}

Conclusion conclusion_of(const Evidence& evidence, double alpha) {
  const double needed = -std::log(alpha);
  if (evidence.log_e_above && *evidence.log_e_above >= needed && *evidence.log_e_below >= needed)
    return Conclusion::kEquivalent;
  if (evidence.log_e >= needed) return evidence.greater ? Conclusion::kGreater : Conclusion::kLess;
  return Conclusion::kNone;
}

SequentialCourse follow(std::span<const double> differences, const SequentialRule& rule,
                        std::optional<double> margin, double alpha, std::size_t known) {
  SequentialCourse out;
  EvidenceProcess process(rule.method, margin, alpha);
  std::size_t look = next_look(rule, 0);
  for (std::size_t i = 0; i < differences.size() && !out.ended(rule); ++i) {
    process.add(differences[i]);
    if (i + 1 < look) continue;
    out.pairs = look;
    out.looks.push_back(process.now());
    out.conclusion = conclusion_of(out.looks.back(), alpha);
    if (rule.futility && look >= known && !out.ended(rule)) {
      out.chance = chance_of_conclusion(differences.first(look), rule, margin, alpha);
      out.futile = *out.chance < *rule.futility;
    }
    look = next_look(rule, look);
  }
  return out;
}

double chance_of_conclusion(std::span<const double> differences, const SequentialRule& rule,
                            std::optional<double> margin, double alpha) {
  EvidenceProcess seen(rule.method, margin, alpha);
  for (const double d : differences) seen.add(d);
  r123::Philox4x32 philox;
  const auto n = static_cast<std::uint32_t>(differences.size());
  std::uint32_t concluded = 0;
  for (std::uint32_t draw = 0; draw < kDraws; ++draw) {
    EvidenceProcess process = seen;
    std::size_t look = next_look(rule, n);
    for (std::uint32_t i = n; i < rule.max_seeds; ++i) {
      const auto bits = philox({{draw, i, n, 2u}}, {{0xa4u, 0xa4u}});
      process.add(differences[(std::uint64_t{bits[0]} * n) >> 32]);
      if (i + 1 < look) continue;
      if (conclusion_of(process.now(), alpha) != Conclusion::kNone) {
        ++concluded;
        break;
      }
      look = next_look(rule, look);
    }
  }
  return static_cast<double>(concluded) / kDraws;
}

std::optional<std::size_t> pairs_to_conclude(std::span<const double> differences, SequentialMethod method,
                                             std::optional<double> margin, double alpha, std::size_t limit) {
  EvidenceProcess process(method, margin, alpha);
  for (std::size_t i = 0; i < limit && !differences.empty(); ++i) {
    process.add(differences[i % differences.size()]);
    if (i + 1 >= differences.size() && conclusion_of(process.now(), alpha) != Conclusion::kNone) return i + 1;
  }
  return std::nullopt;
}

}  // namespace tenon::ab
