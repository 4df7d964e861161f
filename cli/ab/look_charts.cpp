// The drawings of a sequential study: evidence and confidence sequence over its looks; see charts.hpp.
#include "ab/charts.hpp"
#include "ab/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::ab {
namespace {

/// Pairs from 0 to the last look.
Range pairs_range(const SequentialCourse& course) {
  return {0, static_cast<double>(std::max<std::size_t>(course.pairs, 1)) * 1.03};
}

double base_ten(double log_e) {
  return std::clamp(log_e / std::log(10.0), -300.0, 300.0);
}

std::string coloured(std::size_t arm, const char* what) {
  return fmt::format("{} arm{}", what, arm % 6);
}

double width_of(const Interval& interval) {
  return interval.high - interval.low;
}

}  // namespace

std::string evidence_chart(const Comparison& c, ChartSize size) {
  const SequentialResult& s = *c.sequential;
  const double needed = base_ten(-std::log(s.alpha));
  std::vector<double> values{0, needed, needed + 0.5};
  for (const Evidence& e : s.course.looks) {
    values.push_back(base_ten(e.log_e));
    // A process that nothing speaks for falls without end; the plot shows where evidence is.
    if (e.log_e_above) values.push_back(std::max(-2.0, base_ten(std::min(*e.log_e_above, *e.log_e_below))));
  }
  for (double& v : values) v = std::max(v, -2.0);
  Svg svg(size.width, size.height, "chart", "E-values by look, as powers of ten");
  Frame frame(svg, {.x = pairs_range(s.course),
                    .y = range_of(values, 0.06),
                    .x_title = "pairs",
                    .y_title = "log10 of the e-value",
                    .x_is_quantity = false});
  svg.begin_clip({frame.left(), frame.top()}, frame.right() - frame.left() + 6, frame.bottom() - frame.top());
  svg.line({frame.left(), frame.y(0)}, {frame.right(), frame.y(0)}, "zero");
  svg.line({frame.left(), frame.y(needed)}, {frame.right(), frame.y(needed)}, "target");
  std::vector<Point> difference{frame.at(0, 0)}, equivalence{frame.at(0, 0)};
  for (const Evidence& e : s.course.looks) {
    const double pairs = static_cast<double>(e.pairs);
    difference.push_back(frame.at(pairs, base_ten(e.log_e)));
    svg.marker(marker_of(c.other), difference.back(), 3.5, coloured(c.other, "dot"),
               fmt::format("{} pairs: e-value of a difference {}", e.pairs, e_value(e.log_e)));
    if (!e.log_e_above) continue;
    const double both = std::min(*e.log_e_above, *e.log_e_below);
    equivalence.push_back(frame.at(pairs, base_ten(both)));
    svg.marker(marker_of(c.other), equivalence.back(), 3.5, coloured(c.other, "open"),
               fmt::format("{} pairs: lesser e-value of equivalence {}", e.pairs, e_value(both)));
  }
  svg.polyline(difference, coloured(c.other, "curve"), "difference");
  if (equivalence.size() > 1) svg.polyline(equivalence, coloured(c.other, "trace"), "equivalence");
  svg.end_clip();
  return svg.take();
}

std::string confidence_chart(const Comparison& c, ChartSize size) {
  const SequentialResult& s = *c.sequential;
  // Bounds that are many times wider than the last would flatten the rest; they leave the plot.
  std::vector<double> values{0, s.course.looks.back().mean};
  const double last = width_of(s.course.looks.back().interval);
  for (const Evidence& e : s.course.looks) {
    values.push_back(e.mean);
    if (std::isfinite(last) && width_of(e.interval) <= 4 * last)
      values.insert(values.end(), {e.interval.low, e.interval.high});
  }
  if (c.equivalence) values.insert(values.end(), {-c.equivalence->margin, c.equivalence->margin});
  Svg svg(size.width, size.height, "chart",
          fmt::format("Mean difference of {} with its confidence sequence, by look", c.primary.metric));
  const Range y = range_of(values, 0.1);
  Frame frame(svg, {.x = pairs_range(s.course),
                    .y = y,
                    .x_title = "pairs",
                    .y_title = "difference of " + c.primary.metric,
                    .x_is_quantity = false});
  svg.begin_clip({frame.left(), frame.top()}, frame.right() - frame.left() + 6, frame.bottom() - frame.top());
  if (c.equivalence) {
    const double high = frame.y(c.equivalence->margin), low = frame.y(-c.equivalence->margin);
    svg.rect({frame.left(), high}, frame.right() - frame.left(), low - high, "margin");
    for (const double edge : {low, high})
      svg.line({frame.left(), edge}, {frame.right(), edge}, "margin-edge");
  }
  const double room = y.high - y.low;
  std::vector<Point> upper, lower, mean;
  for (const Evidence& e : s.course.looks) {
    const double pairs = static_cast<double>(e.pairs);
    upper.push_back(frame.at(pairs, std::min(e.interval.high, y.high + room)));
    lower.push_back(frame.at(pairs, std::max(e.interval.low, y.low - room)));
    mean.push_back(frame.at(pairs, e.mean));
  }
  svg.band(upper, lower, coloured(c.other, "band"));
  svg.line({frame.left(), frame.y(0)}, {frame.right(), frame.y(0)}, "zero");
  svg.polyline(upper, coloured(c.other, "trace"), "upper bound");
  svg.polyline(lower, coloured(c.other, "trace"), "lower bound");
  svg.polyline(mean, coloured(c.other, "curve"), "mean");
  for (const Point& p : mean) svg.marker(marker_of(c.other), p, 3, coloured(c.other, "dot"), "mean");
  svg.end_clip();
  return svg.take();
}

}  // namespace tenon::ab
