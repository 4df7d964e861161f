// Time to a loss: when a run's metric first reaches the final value of its baseline, and what it had consumed
// by then. Plain data and pure functions over curves; time_to_plan.hpp makes the runs that time them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// One speed of the links, by the `--set` words that configure it.
struct TimeToLink {
  std::string name;
  std::vector<std::string> set;
};

/// The table [time_to] of a study.
struct TimeTo {
  double budget = 1;     ///< share of the baseline's slots at which its value is the threshold
  double looser = 0.02;  ///< share of the baseline's last value by which the second threshold is
                         ///< easier
  std::vector<std::string> timing_set;  ///< of a timing run alone: a tiny batch
  std::vector<std::string> one_seed;    ///< arms whose slots take the same time whatever the seed
  std::vector<TimeToLink> links;        ///< empty: times are those of the runs themselves
};

/// An evaluation, or a place between two, with the consumption up to it.
struct CurvePoint {
  double step = 0;
  double seconds = 0;  ///< without evaluations
  double drawn = 0;    ///< samples taken from the data, all replicas
  double trained = 0;  ///< of them, those that made a gradient
  double bytes = 0;    ///< sent by rank 0, without evaluations
  double value = 0;    ///< the metric; may be NaN or infinite
};

using Curve = std::vector<CurvePoint>;  ///< in order of step

/// The place where a curve first is at `threshold` or better, by linear interpolation from the evaluation
/// before; the first evaluation itself if there is none before it, or if that one is not finite. Not reached:
/// the curve's end, with reached = false (censored).
struct Reach {
  bool reached = false;
  CurvePoint at;
};
Reach first_reach(const Curve& curve, double threshold, bool lower_is_better);

/// The easier threshold: away from the better side by `share` of its size.
double looser_threshold(double threshold, double share, bool lower_is_better);

/// The metric at the first place where `axis` is `x`, interpolated linearly; empty before the first
/// evaluation and beyond the end.
std::optional<double> value_at(const Curve& curve, double CurvePoint::*axis, double x);

/// A number, or one that is only known to be larger (`bound`): the time of a run that never reached the
/// threshold.
struct Bounded {
  double value = 0;
  bool bound = false;
};

/// Median and range with every censored number above all others; a median that falls on or beside one is a
/// bound.
struct Spread {
  std::size_t n = 0;
  std::size_t censored = 0;
  Bounded median, low, high;
};
/// Empty without numbers.
std::optional<Spread> spread_of(std::vector<Bounded> numbers);
/// As spread_of with the signs turned: a gap is at most what a censored time allows.
std::optional<Spread> spread_of_upper(std::vector<Bounded> numbers);

/// (baseline - arm) / baseline in per cent: positive = faster. A bound if the arm was censored: it is at most
/// that.
Bounded time_gap(double baseline_seconds, const Reach& arm);

/// Seconds and bytes by slot, from the training lines of a run, its evaluations taken out.
struct SlotTimes {
  std::vector<double> step, seconds, bytes;

  /// Linear between lines, from 0 before the first. Empty beyond the last.
  std::optional<double> seconds_at(double slot) const;
  std::optional<double> bytes_at(double slot) const;
};

}  // namespace tenon::reproduce
