// Curves of one or more metrics in one drawing, on the frame and scales of the study's report.
#pragma once

#include "ab/charts.hpp"
#include "ab/format.hpp"
#include "ab/html.hpp"
#include "ab/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tenon::report {

struct ChartLine {
  std::string name;
  const ab::Series* series = nullptr;
  std::size_t colour = 0;  ///< arm0 to arm5 of the style sheet
};

/// `y` and the end of `x` follow from the lines unless set, so that small drawings can share them.
struct ChartScale {
  ab::Range x{0, 0};
  ab::Range y{0, 0};
};

// Curves this short show their points; a single point has no line.
inline constexpr std::size_t kMarkedPoints = 12;

inline ChartScale scale_of(const std::vector<ChartLine>& lines, ab::Axis axis) {
  std::vector<std::vector<ab::Point>> curves;
  double end = 1e-12;
  for (const ChartLine& line : lines) {
    curves.push_back(ab::points_on(*line.series, axis));
    for (const ab::Point& point : curves.back()) end = std::max(end, point.x);
  }
  ChartScale scale;
  scale.x = {0, end};
  scale.y = ab::curve_range(curves, scale.x);
  return scale;
}

inline std::string line_chart(const std::vector<ChartLine>& lines, const std::string& title, ab::Axis axis,
                              ab::ChartSize size, const ChartScale& scale) {
  ab::Svg svg(size.width, size.height, "chart", fmt::format("{} against {}", title, ab::axis_label(axis)));
  const ab::Frame frame(svg, {.x = scale.x, .y = scale.y, .x_title = "", .y_title = title, .x_axis = axis});
  svg.begin_clip({frame.left(), frame.top()}, frame.right() - frame.left() + 6, frame.bottom() - frame.top());
  for (const ChartLine& line : lines) {
    const auto shown = ab::bucket_min_max(ab::points_on(*line.series, axis), scale.x.low, scale.x.high,
                                          static_cast<std::size_t>(size.width));
    std::vector<ab::Point> points;
    for (const ab::Point& point : shown) points.push_back(frame.at(point.x, point.y));
    const std::string colour = fmt::format("arm{}", line.colour % 6);
    svg.polyline(points, "curve " + colour, line.name);
    for (std::size_t i = 0; points.size() <= kMarkedPoints && i < points.size(); ++i)
      svg.marker(ab::marker_of(line.colour), points[i], 3, "dot " + colour, line.name);
  }
  svg.end_clip();
  return svg.take();
}

/// Names with their markers.
inline std::string line_legend(const std::vector<ChartLine>& lines) {
  std::string keys;
  for (const ChartLine& line : lines) keys += ab::arm_key(line.colour, line.name);
  return ab::legend(keys);
}

}  // namespace tenon::report
