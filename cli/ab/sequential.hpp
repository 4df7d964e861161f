// Evidence about paired differences that stays valid however often it is looked at: e-values by pair, and the
// rule that stops a study at its first conclusion. Pure functions of the differences in order; nothing here
// knows of runs or files. An e-value is at most 1 on average while its hypothesis holds, at every time at
// which somebody may stop; it exceeds 1 / alpha with probability alpha at most, over all looks together.
#pragma once

#include "ab/statistics.hpp"

#include <tenon/options.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace tenon::ab {

/// kSign needs differences that have either sign alike under no effect; kNormal needs normal ones, of any
/// deviation.
enum class SequentialMethod { kSign, kNormal };
inline constexpr auto kSequentialMethods = option::choice<SequentialMethod>(
    {{"sign", SequentialMethod::kSign}, {"normal", SequentialMethod::kNormal}});

/// The table [sequential] of an experiment.
struct SequentialRule {
  std::size_t max_seeds = 0;
  std::size_t first_look = 5;  ///< pairs before the first look
  std::size_t block = 1;       ///< pairs from look to look
  SequentialMethod method = SequentialMethod::kSign;
  std::optional<double> futility = {};  ///< stop where a conclusion by max_seeds is less likely than this
};

/// Pairs at the look after one at `pairs`; 0 pairs gives the first look.
std::size_t next_look(const SequentialRule& rule, std::size_t pairs);

/// The level of one arm's process: every arm but the baseline has its own, and they share alpha.
double alpha_of_arm(double alpha, std::size_t arms);

/// What the pairs so far say. E-values as natural logarithms, each to be compared with -log(alpha).
struct Evidence {
  std::size_t pairs = 0;
  double mean = 0;
  double log_e = 0;                        ///< against "no difference", in either direction
  bool greater = false;                    ///< the direction that log_e speaks for
  std::optional<double> log_e_above = {};  ///< against "difference <= -margin"
  std::optional<double> log_e_below = {};  ///< against "difference >= +margin"
  Interval interval;                       ///< confidence sequence for normal differences
};

/// The sign e-process of one shift of the differences. Given |d|, the product over pairs of
/// exp(lambda d / s) / cosh(lambda d / s) is one on average where either sign is as likely; it is mixed with
/// equal weights over kLambdas. The scale s of a pair is the median |d| of earlier pairs; a pair without
/// earlier ones, or with only zeros before it, says nothing.
class SignEvidence {
 public:
  static constexpr std::array<double, 7> kLambdas = {0.0625, 0.125, 0.25, 0.5, 1, 2, 4};

  void add(double difference);
  double log_greater() const { return mixture(below_); }
  double log_less() const { return mixture(above_); }

 private:
  double mixture(double wrong_way) const;

  std::vector<double> sizes_;  ///< |d| of earlier pairs, in order of size
  std::size_t counted_ = 0;
  double above_ = 0, below_ = 0;  ///< sums of |d| / s over pairs of each sign
  std::array<double, kLambdas.size()> logs_ = {}, products_ = {1, 1, 1, 1, 1, 1, 1};
};

/// The scale-free mixture for normal differences with unknown deviation (Lai 1976; Wang and Ramdas 2024): the
/// standardized effect is normal with variance 1 / kPriorPairs under the alternative.
class NormalEvidence {
 public:
  /// c^2 of the literature. 1 spreads the alternative over effects around one paired deviation.
  static constexpr double kPriorPairs = 1;

  void add(double difference);
  double mean() const { return mean_; }
  /// Two-sided, against "the mean is `centre`". Differences that all equal the centre say nothing: 0.
  double log_e(double centre) const;
  /// One-sided: for a mean above (below) the centre.
  double log_above(double centre) const;
  double log_below(double centre) const;
  /// The centres that log_e does not reject at alpha; infinite while every one is among them.
  Interval interval(double alpha) const;

 private:
  double one_sided(double shift) const;

  std::size_t n_ = 0;
  double mean_ = 0, squares_ = 0;  ///< squares about the mean
};

/// All processes of one arm.
class EvidenceProcess {
 public:
  EvidenceProcess(SequentialMethod method, std::optional<double> margin, double alpha)
      : method_(method), margin_(margin), alpha_(alpha) {}

  void add(double difference);
  Evidence now() const;

 private:
  SequentialMethod method_;
  std::optional<double> margin_;
  double alpha_;
  std::size_t pairs_ = 0;
  NormalEvidence normal_;
  SignEvidence sign_, above_, below_;
};

enum class Conclusion { kNone, kGreater, kLess, kEquivalent };

/// Equivalence first: a margin says that smaller differences do not matter. Both of its sides must pass.
Conclusion conclusion_of(const Evidence& evidence, double alpha);

/// A study of one arm against the baseline: the looks up to the first conclusion.
struct SequentialCourse {
  std::vector<Evidence> looks;
  Conclusion conclusion = Conclusion::kNone;
  bool futile = false;                ///< stopped because a conclusion had become unlikely
  std::optional<double> chance = {};  ///< of a conclusion by max_seeds, at the last look; with futility only
  std::size_t pairs = 0;              ///< at the last look

  bool ended(const SequentialRule& rule) const {
    return conclusion != Conclusion::kNone || futile || pairs >= rule.max_seeds;
  }
};

/// `alpha` is that of the arm. Looks before `known` pairs are known not to be futile, which is costly to
/// find.
SequentialCourse follow(std::span<const double> differences, const SequentialRule& rule,
                        std::optional<double> margin, double alpha, std::size_t known = 0);

/// Share of continuations that conclude by max_seeds; each draws its further differences from those seen.
double chance_of_conclusion(std::span<const double> differences, const SequentialRule& rule,
                            std::optional<double> margin, double alpha);

/// Pairs that would conclude if the differences seen came again and again, i.e. at the present effect and
/// deviation; empty beyond `limit`.
std::optional<std::size_t> pairs_to_conclude(std::span<const double> differences, SequentialMethod method,
                                             std::optional<double> margin, double alpha, std::size_t limit);

}  // namespace tenon::ab
