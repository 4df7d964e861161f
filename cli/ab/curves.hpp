// Curves of many runs reduced to what a plot can show: min/max per pixel bucket, mean over seeds, difference
// of pairs. Points are never dropped at random.
#pragma once

#include "ab/run_record.hpp"
#include "ab/statistics.hpp"
#include "ab/svg.hpp"

#include <span>
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

}  // namespace tenon::ab
