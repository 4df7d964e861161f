// Bucketing, means and differences of curves; see curves.hpp.
#include "ab/curves.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::ab {
namespace {

using Curve = std::vector<Point>;

std::vector<Curve> curves_on(const std::vector<const Series*>& series, Axis axis) {
  std::vector<Curve> out;
  for (const Series* s : series) out.push_back(points_on(*s, axis));
  return out;
}

// x values at which every curve has, or can be given, a value.
std::vector<double> common_grid(const std::vector<Curve>& curves) {
  std::vector<double> grid;
  if (curves.empty() || curves[0].empty()) return grid;
  for (const Point& p : curves[0]) grid.push_back(p.x);
  const auto same = [&](const Curve& c) {
    return std::equal(c.begin(), c.end(), grid.begin(), grid.end(),
                      [](const Point& p, double x) { return p.x == x; });
  };
  if (std::all_of(curves.begin(), curves.end(), same)) return grid;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  for (const Curve& c : curves) {
    if (c.empty()) return {};
    low = std::max(low, c.front().x);
    high = std::min(high, c.back().x);
  }
  grid.clear();
  if (!(low < high)) return grid;
  for (std::size_t i = 0; i < kInterpolated; ++i) {
    grid.push_back(low + (high - low) * static_cast<double>(i) / static_cast<double>(kInterpolated - 1));
  }
  return grid;
}

double value_at(const Curve& curve, double x) {
  const auto after =
      std::lower_bound(curve.begin(), curve.end(), x, [](const Point& p, double v) { return p.x < v; });
  if (after == curve.end()) return curve.back().y;
  if (after == curve.begin() || after->x == x) return after->y;
  const Point& a = *(after - 1);
  const Point& b = *after;
  return a.y + (b.y - a.y) * (x - a.x) / (b.x - a.x);
}

}  // namespace

std::vector<Point> points_on(const Series& series, Axis axis) {
  std::vector<Point> out;
  out.reserve(series.size());
  for (const MetricPoint& p : series) out.push_back({p.at(axis), p.value});
  return out;
}

std::vector<Point> bucket_min_max(std::span<const Point> points, double low, double high,
                                  std::size_t buckets) {
  if (points.size() <= 2 * buckets || !(high > low)) return {points.begin(), points.end()};
  const auto bucket_of = [&](const Point& p) {
    const double share = std::clamp((p.x - low) / (high - low), 0.0, 1.0);
    return std::min(buckets - 1, static_cast<std::size_t>(share * static_cast<double>(buckets)));
  };
  std::vector<Point> out;
  for (std::size_t i = 0; i < points.size();) {
    const std::size_t bucket = bucket_of(points[i]);
    const Point* smallest = nullptr;
    const Point* largest = nullptr;
    const Point* gap = nullptr;
    for (; i < points.size() && bucket_of(points[i]) == bucket; ++i) {
      const Point& p = points[i];
      if (!std::isfinite(p.y)) {
        gap = &p;
        continue;
      }
      if (smallest == nullptr || p.y < smallest->y) smallest = &p;
      if (largest == nullptr || p.y > largest->y) largest = &p;
    }
    if (smallest != nullptr) {
      out.push_back(*std::min(smallest, largest));
      if (smallest != largest) out.push_back(*std::max(smallest, largest));
    }
    if (gap != nullptr) out.push_back(*gap);
  }
  return out;
}

std::vector<EstimatePoint> mean_curve(const std::vector<const Series*>& series, Axis axis, double alpha) {
  const std::vector<Curve> curves = curves_on(series, axis);
  std::vector<EstimatePoint> out;
  for (double x : common_grid(curves)) {
    std::vector<double> values;
    for (const Curve& c : curves) values.push_back(value_at(c, x));
    out.push_back({x, mean_with_interval(values, alpha)});
  }
  return out;
}

std::vector<EstimatePoint> difference_curve(const std::vector<const Series*>& baseline,
                                            const std::vector<const Series*>& other, Axis axis,
                                            double alpha) {
  const std::vector<Curve> left = curves_on(baseline, axis);
  const std::vector<Curve> right = curves_on(other, axis);
  std::vector<Curve> all = left;
  all.insert(all.end(), right.begin(), right.end());
  std::vector<EstimatePoint> out;
  for (double x : common_grid(all)) {
    std::vector<double> differences;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      differences.push_back(value_at(right[i], x) - value_at(left[i], x));
    }
    out.push_back({x, mean_with_interval(differences, alpha)});
  }
  return out;
}

}  // namespace tenon::ab
