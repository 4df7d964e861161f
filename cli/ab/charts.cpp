// Bucketing, means, spreads and differences of curves, and the drawings. Classes arm0 to arm5 carry an arm's
// colour.
#include "ab/charts.hpp"

#include "ab/format.hpp"
#include "ab/plot.hpp"

#include <fmt/format.h>

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

std::vector<Spread> spread_curve(const std::vector<const Series*>& series, Axis axis, double share) {
  const std::vector<Curve> curves = curves_on(series, axis);
  std::vector<Spread> out;
  for (double x : common_grid(curves)) {
    std::vector<double> values;
    for (const Curve& c : curves) {
      const double v = value_at(c, x);
      if (std::isfinite(v)) values.push_back(v);
    }
    std::sort(values.begin(), values.end());
    const auto quantile = [&](double q) {
      if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
      const double at = q * static_cast<double>(values.size() - 1);
      const auto below = static_cast<std::size_t>(at);
      const std::size_t above = std::min(below + 1, values.size() - 1);
      return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
    };
    out.push_back({x, quantile(share), quantile(1 - share)});
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

namespace {

constexpr std::size_t kColours = 6;
constexpr std::size_t kRowsForPairs = 24;  // beyond it the pairs share one row
constexpr double kMarkRoom = 6;            // a mark at the last x reaches beyond the frame
constexpr std::size_t kMarkedPoints = 12;  // curves this short show their points; a single point has no line

std::string arm_class(std::size_t arm, const char* what) {
  return fmt::format("{} arm{}", what, arm % kColours);
}

/// Buckets of a drawing with so many lines. A crowd's have less detail, as its lines cover each other.
std::size_t buckets_for(const ChartSize& size, bool crowd) {
  return static_cast<std::size_t>(size.width) / (crowd ? 4 : 1);
}

/// Buckets of each of `lines` thin lines: about kPoints for all.
std::size_t buckets_of_lines(const ChartSize& size, std::size_t lines) {
  constexpr double kPoints = 6;  // per pixel of width
  const double each = kPoints * size.width / (2 * static_cast<double>(std::max<std::size_t>(lines, 1)));
  return static_cast<std::size_t>(std::clamp(each, 40.0, size.width));
}

constexpr std::size_t kCrowdLines = 12;  // over all arms

/// Runs of an arm that a drawing shows as lines.
std::vector<std::size_t> drawn_runs(const Study& study, const ArmRuns& arm) {
  const std::size_t count =
      is_crowd(study) ? std::max<std::size_t>(2, kCrowdLines / study.arms.size()) : arm.runs.size();
  return typical_runs(arm, study.experiment.metric, count);
}

std::vector<Point> mapped(const Frame& frame, std::span<const Point> points) {
  std::vector<Point> out;
  for (const Point& p : points) out.push_back(frame.at(p.x, p.y));
  return out;
}

std::vector<Point> means_of(const std::vector<EstimatePoint>& points) {
  std::vector<Point> out;
  for (const EstimatePoint& p : points) out.push_back({p.x, p.y.mean});
  return out;
}

// Share of runs at the target after time t, as a staircase that ends at the last follow-up.
std::vector<Point> staircase(const SurvivalEstimate& estimate, double end) {
  std::vector<Point> out{{0, 0}};
  for (const SurvivalStep& step : estimate.steps) {
    out.push_back({step.time, out.back().y});
    out.push_back({step.time, 1 - step.survival});
  }
  out.push_back({std::max(end, out.back().x), out.back().y});
  return out;
}

}  // namespace

bool is_crowd(const Study& study) {
  std::size_t runs = 0;
  for (const ArmRuns& arm : study.arms) runs += arm.runs.size();
  return runs > kCrowd;
}

std::vector<std::size_t> typical_runs(const ArmRuns& arm, const std::string& metric, std::size_t count) {
  std::vector<std::pair<double, std::size_t>> ordered;
  for (std::size_t s = 0; s < arm.runs.size(); ++s) {
    if (!arm.runs[s]) continue;
    const double value = arm.runs[s]->final_value(metric).value_or(NAN);
    ordered.emplace_back(std::isfinite(value) ? value : -std::numeric_limits<double>::infinity(), s);
  }
  std::sort(ordered.begin(), ordered.end());
  std::vector<std::size_t> out;
  const std::size_t shown = std::min(count, ordered.size());
  for (std::size_t i = 0; i < shown; ++i)
    out.push_back(ordered[shown == 1 ? 0 : i * (ordered.size() - 1) / (shown - 1)].second);
  std::sort(out.begin(), out.end());
  return out;
}

Range curve_range(const std::vector<std::vector<Point>>& curves, Range x) {
  std::vector<double> all;
  std::vector<double> late;
  const double start = x.low + 0.05 * (x.high - x.low);
  for (const auto& curve : curves) {
    for (const Point& p : curve) {
      all.push_back(p.y);
      if (p.x >= start) late.push_back(p.y);
    }
  }
  const Range whole = range_of(all, 0.06);
  const Range settled = range_of(late, 0.06);
  return settled.high - settled.low < (whole.high - whole.low) / 3 && late.size() > 1 ? settled : whole;
}

std::vector<const Series*> series_of(const ArmRuns& arm, const std::string& metric) {
  std::vector<const Series*> out;
  for (const auto& run : arm.runs) {
    if (!run) continue;
    const auto found = run->series.find(metric);
    if (found != run->series.end() && !found->second.empty()) out.push_back(&found->second);
  }
  return out;
}

std::string seeds_chart(const StudyResult& result, ChartSize size) {
  const Study& study = result.study;
  const std::string& metric = study.experiment.metric;
  const std::size_t arms = study.arms.size();
  std::vector<double> values;
  for (const ArmRuns& arm : study.arms) {
    for (const auto& run : arm.runs) {
      if (run) values.push_back(run->final_value(metric).value_or(NAN));
    }
  }
  Svg svg(size.width, size.height, "chart",
          fmt::format("Final {} of every run, pairs joined by lines", metric));
  Frame frame(svg, {.x = {0, 1},
                    .y = range_of(values, 0.08),
                    .x_title = "",
                    .y_title = metric,
                    .x_is_quantity = false,
                    .draw_x = false});
  const double span = frame.right() - frame.left();
  const auto column = [&](std::size_t arm) {
    return frame.left() + span * (static_cast<double>(arm) + 0.5) / static_cast<double>(arms);
  };
  for (std::size_t s = 0; s < study.experiment.seeds.size(); ++s) {
    std::vector<Point> path;
    for (std::size_t a = 0; a < arms; ++a) {
      if (s >= study.arms[a].runs.size()) break;  // the arm had left the race
      const auto& run = study.arms[a].runs[s];
      path.push_back({column(a), run ? frame.y(run->final_value(metric).value_or(NAN)) : NAN});
    }
    svg.polyline(path, "pair", fmt::format("seed {}", study.experiment.seeds[s]));
  }
  for (std::size_t a = 0; a < arms; ++a) {
    for (std::size_t s = 0; s < study.arms[a].runs.size(); ++s) {
      const auto& run = study.arms[a].runs[s];
      if (!run) continue;
      const double value = run->final_value(metric).value_or(NAN);
      svg.marker(
          marker_of(a), {column(a), frame.y(value)}, 4.5, arm_class(a, "dot"),
          fmt::format("{}, seed {}: {}", study.arms[a].arm.name, study.experiment.seeds[s], compact(value)));
    }
    // Names are truncated to their column; the legend has them whole.
    const auto room = static_cast<std::size_t>(span / static_cast<double>(arms) / 7);
    std::string name = study.arms[a].arm.name;
    if (name.size() > room && room > 2) name = name.substr(0, room - 1) + "\u2026";
    svg.text({column(a), frame.bottom() + 18}, name, "label", Anchor::kMiddle);
  }
  return svg.take();
}

double effect_chart_height(std::size_t pairs) {
  return pairs <= kRowsForPairs ? 106 + 17 * static_cast<double>(pairs) : 190;
}

std::string effect_chart(const Comparison& c, ChartSize size) {
  const PairedMetric& m = c.primary;
  const std::size_t n = m.differences.size();
  const bool rows = n <= kRowsForPairs;
  std::vector<double> shown = m.differences;
  shown.insert(shown.end(), {0.0, m.difference.interval.low, m.difference.interval.high});
  if (c.equivalence) shown.insert(shown.end(), {-c.equivalence->margin, c.equivalence->margin});
  const Range x = range_of(shown, 0.1);

  Svg svg(size.width, size.height, "chart",
          fmt::format("Difference of {} by pair, with mean and interval", m.metric));
  const double row_count = rows ? static_cast<double>(n) + 2 : 5;
  Frame frame(svg, {.x = x,
                    .y = {0, row_count},
                    .x_title = fmt::format("difference of {}", m.metric),
                    .y_title = "",
                    .x_is_quantity = false,
                    .draw_y = false,
                    .left = 74});
  const auto row = [&](double index) { return frame.y(row_count - index - 0.5); };
  if (c.equivalence) {
    const double margin = c.equivalence->margin;
    svg.rect({frame.x(-margin), frame.top()}, frame.x(margin) - frame.x(-margin),
             frame.bottom() - frame.top(), "margin");
    for (double edge : {frame.x(-margin), frame.x(margin)}) {
      svg.line({edge, frame.top()}, {edge, frame.bottom()}, "margin-edge");
    }
  }
  for (std::size_t i = 0; rows && i < n; ++i) {
    const double at = row(static_cast<double>(i));
    svg.line({frame.left(), at}, {frame.right(), at}, "grid");
  }
  svg.line({frame.x(0), frame.top()}, {frame.x(0), frame.bottom()}, "zero");
  const int decimals = metric_decimals(m.difference, m.baseline_mean.mean);
  for (std::size_t i = 0; i < n; ++i) {
    const double at = rows ? static_cast<double>(i) : 0.3 + 2.4 * static_cast<double>(i % 7) / 6;
    if (rows) {
      svg.text({frame.left() - 10, row(at) + 4}, fmt::format("seed {}", c.seeds[i]), "tick", Anchor::kEnd);
    }
    svg.marker(marker_of(c.other), {frame.x(m.differences[i]), row(at)}, 4, arm_class(c.other, "dot"),
               fmt::format("seed {}: {}", c.seeds[i], fixed_signed(m.differences[i], decimals)));
  }
  if (!rows) svg.text({frame.left() - 10, row(1.5) + 4}, fmt::format("{} pairs", n), "tick", Anchor::kEnd);
  const double mean_row = row(row_count - 1.2);
  svg.text({frame.left() - 10, mean_row + 4}, "mean", "label", Anchor::kEnd);
  if (n >= 2) {
    const double low = frame.x(m.difference.interval.low);
    const double high = frame.x(m.difference.interval.high);
    svg.line({low, mean_row}, {high, mean_row}, "interval");
    svg.line({low, mean_row - 6}, {low, mean_row + 6}, "interval");
    svg.line({high, mean_row - 6}, {high, mean_row + 6}, "interval");
  }
  svg.marker(Marker::kDiamond, {frame.x(m.difference.mean), mean_row}, 6, "mean-mark",
             fmt::format("mean {}", fixed_signed(m.difference.mean, decimals)));
  return svg.take();
}

std::string curve_chart(const StudyResult& result, const std::string& metric, Axis axis, ChartSize size) {
  const Study& study = result.study;
  std::vector<std::vector<Point>> curves;
  std::vector<double> ends{0};
  for (const ArmRuns& arm : study.arms) {
    for (const Series* s : series_of(arm, metric)) {
      curves.push_back(points_on(*s, axis));
      ends.push_back(curves.back().back().x);
    }
  }
  const Range x{0, std::max(1e-12, *std::max_element(ends.begin(), ends.end()))};
  Svg svg(size.width, size.height, "chart",
          fmt::format("{} of every run against {}", metric, axis_label(axis)));
  Frame frame(svg, {.x = x, .y = curve_range(curves, x), .x_title = "", .y_title = metric, .x_axis = axis});
  svg.begin_clip({frame.left(), frame.top()}, frame.right() - frame.left() + kMarkRoom,
                 frame.bottom() - frame.top());
  if (study.experiment.target && metric == study.experiment.metric) {
    const double y = frame.y(*study.experiment.target);
    svg.line({frame.left(), y}, {frame.right(), y}, "target");
  }
  const bool crowd = is_crowd(study);
  std::size_t lines = 0;
  for (const ArmRuns& arm : study.arms) lines += drawn_runs(study, arm).size();
  for (std::size_t a = 0; crowd && a < study.arms.size(); ++a) {
    std::vector<Point> upper, lower;
    for (const Spread& s : spread_curve(series_of(study.arms[a], metric), axis, kSpreadShare)) {
      upper.push_back({s.x, s.high});
      lower.push_back({s.x, s.low});
    }
    const std::size_t buckets = buckets_for(size, crowd);
    svg.band(mapped(frame, bucket_min_max(upper, x.low, x.high, buckets)),
             mapped(frame, bucket_min_max(lower, x.low, x.high, buckets)), arm_class(a, "band"));
  }
  for (std::size_t a = 0; a < study.arms.size(); ++a) {
    const ArmRuns& arm = study.arms[a];
    for (const std::size_t s : drawn_runs(study, arm)) {
      const auto found = arm.runs[s]->series.find(metric);
      if (found == arm.runs[s]->series.end()) continue;
      const auto points = mapped(frame, bucket_min_max(points_on(found->second, axis), x.low, x.high,
                                                       buckets_of_lines(size, lines)));
      const std::string title = fmt::format("{}, seed {}", arm.arm.name, study.experiment.seeds[s]);
      svg.polyline(points, arm_class(a, "trace"), title);
      for (std::size_t i = 0; points.size() <= kMarkedPoints && i < points.size(); ++i) {
        svg.marker(marker_of(a), points[i], 2.5, arm_class(a, "faint"), title);
      }
    }
  }
  for (std::size_t a = 0; a < study.arms.size(); ++a) {
    const auto means = means_of(mean_curve(series_of(study.arms[a], metric), axis, study.experiment.alpha));
    svg.polyline(mapped(frame, bucket_min_max(means, x.low, x.high, buckets_for(size, crowd))),
                 arm_class(a, "curve"), fmt::format("{}, mean", study.arms[a].arm.name));
  }
  svg.end_clip();
  return svg.take();
}

std::string difference_chart(const StudyResult& result, const Comparison& c, Axis axis, ChartSize size) {
  const Study& study = result.study;
  const auto points =
      difference_curve(series_of(study.arms[0], c.primary.metric),
                       series_of(study.arms[c.other], c.primary.metric), axis, study.experiment.alpha);
  Range x{0, 1};
  std::vector<Point> upper, lower;
  for (const EstimatePoint& p : points) {
    x.high = std::max(p.x, 1e-12);
    upper.push_back({p.x, p.y.interval.high});
    lower.push_back({p.x, p.y.interval.low});
  }
  std::vector<std::vector<Point>> edges{upper, lower, means_of(points), {{x.high, 0.0}}};
  const bool margin = c.equivalence && axis == study.experiment.budget.kind;
  if (margin) edges.push_back({{x.high, c.equivalence->margin}, {x.high, -c.equivalence->margin}});
  Svg svg(size.width, size.height, "chart",
          fmt::format("Mean paired difference of {} against {}", c.primary.metric, axis_label(axis)));
  Frame frame(svg, {.x = x,
                    .y = curve_range(edges, x),
                    .x_title = "",
                    .y_title = "difference of " + c.primary.metric,
                    .x_axis = axis});
  svg.begin_clip({frame.left(), frame.top()}, frame.right() - frame.left() + kMarkRoom,
                 frame.bottom() - frame.top());
  if (margin) {
    const double high = frame.y(c.equivalence->margin);
    const double low = frame.y(-c.equivalence->margin);
    svg.rect({frame.left(), high}, frame.right() - frame.left(), low - high, "margin");
    for (double edge : {low, high}) svg.line({frame.left(), edge}, {frame.right(), edge}, "margin-edge");
  }
  const std::size_t buckets = buckets_for(size, is_crowd(study));
  svg.band(mapped(frame, bucket_min_max(upper, x.low, x.high, buckets)),
           mapped(frame, bucket_min_max(lower, x.low, x.high, buckets)), arm_class(c.other, "band"));
  svg.line({frame.left(), frame.y(0)}, {frame.right(), frame.y(0)}, "zero");
  svg.polyline(mapped(frame, bucket_min_max(means_of(points), x.low, x.high, buckets)),
               arm_class(c.other, "curve"), "mean");
  for (std::size_t i = 0; points.size() <= kMarkedPoints && i < points.size(); ++i) {
    const EstimatePoint& p = points[i];
    if (p.y.n >= 2 && points.size() == 1) {
      svg.line(frame.at(p.x, p.y.interval.low), frame.at(p.x, p.y.interval.high),
               arm_class(c.other, "curve"));
    }
    svg.marker(marker_of(c.other), frame.at(p.x, p.y.mean), 3, arm_class(c.other, "dot"), "mean");
  }
  svg.end_clip();
  return svg.take();
}

std::string target_chart(const StudyResult& result, const Comparison& c, const TargetComparison& target,
                         ChartSize size) {
  double end = 0;
  for (std::size_t arm : {std::size_t{0}, c.other}) {
    for (const Series* series : series_of(result.study.arms[arm], c.primary.metric)) {
      end = std::max(end, series->back().at(target.axis));
    }
  }
  const Range x{0, std::max(1e-12, end)};
  Svg svg(size.width, size.height, "chart",
          fmt::format("Share of runs at the target against {}", axis_label(target.axis)));
  Frame frame(svg, {.x = x,
                    .y = {0, 1.04},
                    .x_title = "",
                    .y_title = "runs at target",
                    .x_axis = target.axis,
                    .y_is_share = true});
  svg.begin_clip({frame.left() - kMarkRoom, frame.top() - kMarkRoom},
                 frame.right() - frame.left() + 2 * kMarkRoom, frame.bottom() - frame.top() + 2 * kMarkRoom);
  const auto draw = [&](std::size_t arm, const std::vector<Observation>& runs,
                        const SurvivalEstimate& estimate) {
    svg.polyline(mapped(frame, staircase(estimate, end)), arm_class(arm, "curve"),
                 result.study.arms[arm].arm.name);
    const bool crowd = is_crowd(result.study);
    std::size_t unreached = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      // The steps of the curve say when a crowd's runs got there, and those that did not end together.
      if (crowd && (runs[i].reached || ++unreached > kCrowd)) continue;
      double share = 0;
      for (const SurvivalStep& step : estimate.steps) {
        if (step.time <= runs[i].time) share = 1 - step.survival;
      }
      const std::string title =
          fmt::format("{}, seed {}: {} {}", result.study.arms[arm].arm.name, c.seeds[i],
                      runs[i].reached ? "reached at" : "not reached by", quantity(runs[i].time, target.axis));
      svg.marker(marker_of(arm), frame.at(runs[i].time, share), 4,
                 arm_class(arm, runs[i].reached ? "dot" : "open"), title);
    }
  };
  draw(0, target.baseline, target.baseline_estimate);
  draw(c.other, target.other, target.other_estimate);
  svg.end_clip();
  return svg.take();
}

}  // namespace tenon::ab
