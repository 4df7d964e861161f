// The drawings of the report, each as one SVG element at one size. Curves of many runs are reduced to what a
// plot can show: min/max per bucket of pixels, mean and spread over seeds, difference of pairs. Points are
// never dropped at random. Above kCrowd runs a drawing has a few of them, and its size no longer grows.
#pragma once

#include "ab/analysis.hpp"
#include "ab/plot.hpp"
#include "ab/run_record.hpp"
#include "ab/statistics.hpp"

#include <span>
#include <string>
#include <vector>

namespace tenon::ab {

/// A series against one axis.
std::vector<Point> points_on(const Series& series, Axis axis);

/// At most two points per bucket of [low, high]: its smallest and its largest value, in their order; a point
/// that is not finite is kept as the gap it is. Short inputs come back unchanged.
std::vector<Point> bucket_min_max(std::span<const Point> points, double low, double high,
                                  std::size_t buckets);

struct EstimatePoint {
  double x = 0;
  MeanEstimate y;
};

/// Mean over series at common points: the shared grid if all series have the same x values, else
/// kInterpolated evenly spaced points of the range that all cover, by linear interpolation.
std::vector<EstimatePoint> mean_curve(const std::vector<const Series*>& series, Axis axis, double alpha);

/// Mean of other - baseline by pair, on the same rule.
std::vector<EstimatePoint> difference_curve(const std::vector<const Series*>& baseline,
                                            const std::vector<const Series*>& other, Axis axis, double alpha);

inline constexpr std::size_t kInterpolated = 240;

struct Spread {
  double x = 0;
  double low = 0, high = 0;
};

/// Quantiles `share` and 1 - `share` over series, at the points of mean_curve; NaN where no value is finite.
std::vector<Spread> spread_curve(const std::vector<const Series*>& series, Axis axis, double share);

/// Runs of a study up to which drawings show each of them.
inline constexpr std::size_t kCrowd = 24;
inline constexpr double kSpreadShare = 0.05;  ///< left out on each side of the band over a crowd's runs
bool is_crowd(const Study& study);

/// Positions of at most `count` runs of an arm whose final values are spread evenly over those of all,
/// including the least and the greatest; runs without a finite value come first.
std::vector<std::size_t> typical_runs(const ArmRuns& arm, const std::string& metric, std::size_t count);

struct ChartSize {
  double width = 720;
  double height = 300;
};

/// Training curves fall steeply at first. If the part after the first twentieth uses less than a third of the
/// height, the axis follows that part and the start leaves the plot at the top (or bottom).
Range curve_range(const std::vector<std::vector<Point>>& curves, Range x);

/// Final values by arm, one line per pair.
std::string seeds_chart(const StudyResult& result, ChartSize size);
/// Differences by pair, their mean with interval, the margin, and zero.
std::string effect_chart(const Comparison& comparison, ChartSize size);
/// Height that effect_chart needs for the number of pairs.
double effect_chart_height(std::size_t pairs);
/// All runs and the mean of each arm; of a crowd a band, a few runs and the mean.
std::string curve_chart(const StudyResult& result, const std::string& metric, Axis axis, ChartSize size);
/// Mean difference with its pointwise interval.
std::string difference_chart(const StudyResult& result, const Comparison& comparison, Axis axis,
                             ChartSize size);
/// E-values against the pairs, on a logarithmic scale, with the height that concludes; of a sequential study.
std::string evidence_chart(const Comparison& comparison, ChartSize size);
/// Mean and confidence sequence against the pairs; of a sequential study.
std::string confidence_chart(const Comparison& comparison, ChartSize size);
/// Share of runs that reached the target, against time.
std::string target_chart(const StudyResult& result, const Comparison& comparison,
                         const TargetComparison& target, ChartSize size);

/// The curves of one arm, one per usable run.
std::vector<const Series*> series_of(const ArmRuns& arm, const std::string& metric);

}  // namespace tenon::ab
