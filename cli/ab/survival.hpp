// Time to target with censoring: runs that never reach the target count as "later than their budget", not as
// missing. Kaplan-Meier median and restricted mean, log-rank test, and the mean that MLPerf reports. Pure
// functions; the unit of time is the caller's (steps, samples, tokens, seconds, bytes).
#pragma once

#include "ab/statistics.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::ab {

struct Observation {
  double time = 0;       ///< time of the target, or the end of the budget
  bool reached = false;  ///< false: censored at `time`
};

/// One step of the Kaplan-Meier curve: S falls to `survival` at `time`.
struct SurvivalStep {
  double time = 0;
  std::size_t at_risk = 0;
  std::size_t events = 0;
  double survival = 1;
  Interval interval;  ///< log-log transformed Greenwood interval; [0, 1] where it is undefined
};

struct SurvivalEstimate {
  std::size_t n = 0;
  std::size_t reached = 0;
  std::vector<SurvivalStep> steps;  ///< at event times only
  /// Smallest time with S <= 1/2; empty if fewer than half the runs arrive. Bounds: where the bands cross 1/2
  /// (Brookmeyer-Crowley); an empty upper bound means "beyond the budget".
  std::optional<double> median;
  std::optional<double> median_low;
  std::optional<double> median_high;
  double restricted_mean = 0;  ///< area under S up to `horizon`
  double restricted_mean_se = 0;
  Interval restricted_mean_interval;  ///< normal, coverage 1 - alpha
  double horizon = 0;
};

/// Kaplan-Meier estimate up to `horizon`; alpha sets the coverage of all intervals.
SurvivalEstimate kaplan_meier(std::span<const Observation> runs, double horizon, double alpha);

/// centre +- normal quantile * se, coverage 1 - alpha.
Interval normal_interval(double centre, double se, double alpha);

/// Log-rank test between two groups. It does not use the pairing, so it is conservative when pairs correlate.
struct LogRankTest {
  double chi_square = 0;
  double p = 1;
};

LogRankTest log_rank_test(std::span<const Observation> a, std::span<const Observation> b);

/// Mean time to target as MLPerf prints it: with five or more runs the fastest and the slowest are dropped
/// and one run may fail to converge (it is the slowest); with fewer runs all must converge. Otherwise `mean`
/// is empty and `why` holds the reason.
struct MlperfMean {
  std::optional<double> mean;
  std::size_t used = 0;
  std::string why;
};

MlperfMean mlperf_mean(std::span<const Observation> runs);

}  // namespace tenon::ab
