// Statistics of paired differences between two arms: pure functions over small samples (3 to 40 seeds).
// Special functions come from Boost.Math alone. Nothing here knows of runs, files or metrics.
// A difference is (other arm) - (baseline) for the same seed; every p-value is two-sided unless named
// otherwise.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tenon::ab {

struct Interval {
  double low = 0;
  double high = 0;
};

/// Mean of the sample with a Student t interval of coverage 1 - alpha. `low` and `high` are NaN for n < 2.
struct MeanEstimate {
  std::size_t n = 0;
  double mean = 0;
  double sd = 0;  ///< sample standard deviation (n - 1); NaN for n < 2
  double se = 0;  ///< sd / sqrt(n)
  Interval interval;
};

MeanEstimate mean_with_interval(std::span<const double> values, double alpha);

/// Returns whether the values differ by more than rounding. Without spread the noise is unknown, and neither
/// a t test nor an interval means anything.
bool has_spread(std::span<const double> values);

/// Student t test of mean difference = 0. For n < 2, p = 1 (nothing can be said). Differences without spread
/// have no test: t and p are NaN.
struct TTest {
  double t = 0;
  double p = 1;
  bool defined() const { return !std::isnan(p); }
};

TTest paired_t_test(std::span<const double> differences);

/// P(T >= t) of Student t with df degrees of freedom, for infinite t too.
double upper_tail(double t, double df);

/// P(F >= f) of the F distribution, whose second degrees of freedom may be any positive number.
double upper_tail_f(double f, double df1, double df2);

/// The t with P(T >= t) = p.
double upper_quantile(double p, double df);

/// Hodges-Lehmann shift: the median of all Walsh averages (d_i + d_j) / 2, i <= j.
double hodges_lehmann(std::span<const double> differences);

/// Sign-flip (permutation) test of "differences are symmetric about zero". Exact up to kExactSignFlipLimit
/// pairs by meet in the middle over all 2^n sign patterns; beyond it `draws` patterns from Philox4x32-10 with
/// a fixed key, and p = (hits + 1) / (draws + 1), which keeps the test valid.
struct SignFlipTest {
  double p = 1;
  bool exact = true;
  std::uint64_t patterns = 0;  ///< 2^n, or the number of draws
};

inline constexpr std::size_t kExactSignFlipLimit = 32;

SignFlipTest sign_flip_test(std::span<const double> differences, std::uint64_t draws = 200'000);

/// The smallest p that the sign-flip test can give with n pairs: 2 / 2^n (1 for n < 2).
double smallest_sign_flip_p(std::size_t n);

/// Power of the two-sided paired t test against a true shift of `effect` paired standard deviations.
double t_test_power(std::size_t n, double effect, double alpha);

/// Smallest true shift, in paired standard deviations, that n pairs detect with the given power (noncentral
/// t); infinite for n < 2.
double minimum_detectable_effect(std::size_t n, double power, double alpha);

/// Two one-sided t tests against [-margin, +margin] (Schuirmann 1987). p = max of both; the arms are
/// equivalent at level alpha when p <= alpha, i.e. when the 1 - 2 alpha interval is inside the margin.
/// Differences without spread have no t test: p is then of the one-sided sign-flip tests, at least 1 / 2^n.
struct EquivalenceTest {
  double margin = 0;
  double p_above_low = 1;   ///< against "difference <= -margin"
  double p_below_high = 1;  ///< against "difference >= +margin"
  double p = 1;
  Interval interval;  ///< coverage 1 - 2 alpha
};

EquivalenceTest equivalence_test(std::span<const double> differences, double margin, double alpha);

/// Holm's step-down adjustment; the result is in the order of the input.
std::vector<double> holm_adjust(std::span<const double> p_values);

double median(std::vector<double> values);

/// Pearson correlation between the arms over the pairs: the benefit of pairing. NaN if an arm does not vary.
double correlation(std::span<const double> a, std::span<const double> b);

}  // namespace tenon::ab
