// The figure of a study of scaling: three panels over the number of trainers; see scaling_render.hpp.
#include "reproduce/scaling_render.hpp"

#include "ab/format.hpp"
#include "ab/plot.hpp"
#include "reproduce/markdown.hpp"
#include "reproduce/render.hpp"
#include "reproduce/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace tenon::reproduce {
namespace {

constexpr double kScalingTop = 60, kLegendRow = 20, kPanel = 270, kMargin = 0.06;
constexpr std::size_t kColours = 6;

using Quantity = std::function<std::optional<double>(const PointResult&)>;

struct Line {
  const ScalingArm* arm;
  std::string style;  ///< CSS classes
  std::size_t marker;
};

/// Arms beyond the colours of the style sheet take them again, dashed.
std::vector<Line> lines_of(const std::vector<ScalingArm>& arms) {
  std::vector<Line> out;
  for (const ScalingArm& arm : arms) {
    if (arm.measured) continue;
    const std::size_t i = out.size();
    out.push_back({&arm, fmt::format("arm{}{}", i % kColours, i < kColours ? "" : " again"), i});
  }
  return out;
}

std::vector<ab::Point> points_of(const Line& line, const Quantity& quantity) {
  std::vector<ab::Point> out;
  for (const PointResult& point : line.arm->points)
    if (const auto value = quantity(point)) out.push_back({static_cast<double>(point.trainers), *value});
  return out;
}

std::string panel(const std::vector<Line>& lines, const std::string& title, const Quantity& quantity,
                  bool from_zero, const std::optional<double>& slope) {
  std::vector<double> x{0}, y;
  if (from_zero) y.push_back(0);
  for (const Line& line : lines) {
    for (const ab::Point& point : points_of(line, quantity)) {
      x.push_back(point.x);
      y.push_back(point.y);
    }
  }
  const double most = *std::max_element(x.begin(), x.end());
  if (slope) y.push_back(*slope * most);
  ab::Range y_range = ab::range_of(y, kMargin);
  if (from_zero) y_range.low = 0;
  ab::Svg svg(kFigureWidth, kPanel, "chart", title);
  const ab::Frame frame(svg, {.x = {0, std::max(most * 1.03, 1.0)},
                              .y = y_range,
                              .x_title = "trainers",
                              .y_title = title,
                              .x_is_quantity = false,
                              .left = 84});
  if (slope) {
    svg.line(frame.at(0, 0), frame.at(most, *slope * most), "zero");
    svg.text({frame.x(most) - 44, frame.y(*slope * most) + 6}, "linear", "tick", ab::Anchor::kEnd);
  }
  for (const Line& line : lines) {
    std::vector<ab::Point> at;
    for (const ab::Point& point : points_of(line, quantity)) at.push_back(frame.at(point.x, point.y));
    svg.polyline(at, "curve " + line.style, line.arm->title);
    for (const ab::Point& point : at)
      svg.marker(ab::marker_of(line.marker), point, 3.2, "dot " + line.style, line.arm->title);
  }
  return svg.take();
}

std::string legend(const std::vector<Line>& lines, double height) {
  ab::Svg svg(kFigureWidth, height, "chart", "");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t row = i / 2;
    const double x = 24 + static_cast<double>(i % 2) * kFigureWidth / 2;
    const double y = 12 + kLegendRow * static_cast<double>(row);
    const ab::Point stroke[] = {{x, y}, {x + 30, y}};
    svg.polyline(stroke, "curve " + lines[i].style, "");
    svg.marker(ab::marker_of(lines[i].marker), {x + 15, y}, 3.2, "dot " + lines[i].style, "");
    svg.text({x + 38, y + 4}, lines[i].arm->title, "label", ab::Anchor::kStart);
  }
  return svg.take();
}

}  // namespace

std::string scaling_figure(const StudyResult& r) {
  const std::vector<ScalingArm> arms = scaling_arms(r);
  const std::vector<Line> lines = lines_of(arms);
  ab::Svg top(kFigureWidth, kScalingTop, "chart", "");
  top.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  const bool warned = !caution(r.size).empty();
  top.text({16, 46},
           warned ? caution(r.size)
                  : fmt::format("{} samples a run, {} seed{}, simulated clock",
                                count(static_cast<double>(r.size.samples)), r.size.seeds.size(),
                                r.size.seeds.size() == 1 ? "" : "s"),
           warned ? "warn" : "tick", ab::Anchor::kStart);

  std::optional<double> slope;  // examples per second of one trainer
  for (const Line& line : lines) {
    for (const PointResult& point : line.arm->points)
      if (!slope && point.trainers == 1) slope = point.examples_per_s;
  }
  std::string drawing =
      "<style>svg .again{stroke-dasharray:6 4}svg .dot.again{stroke-dasharray:none}</style>\n";
  double y = 0;
  const auto place = [&](double height, const std::string& inner) {
    drawing += fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", y, kFigureWidth,
                           height, inner);
    y += height;
  };
  const std::size_t legend_rows = (lines.size() + 1) / 2;
  const double legend_height = kLegendRow * static_cast<double>(legend_rows) + 14;
  place(kScalingTop, top.take());
  place(legend_height, legend(lines, legend_height));
  place(kPanel, panel(
                    lines, "thousand examples/s, simulated",
                    [](const PointResult& p) -> std::optional<double> {
                      return p.examples_per_s ? std::optional(*p.examples_per_s / 1000) : std::nullopt;
                    },
                    true, slope ? std::optional(*slope / 1000) : std::nullopt));
  place(kPanel, panel(
                    lines, r.study.metric,
                    [](const PointResult& p) { return p.loss ? std::optional(p.loss->mean) : std::nullopt; },
                    false, std::nullopt));
  place(kPanel, panel(
                    lines, "slots between two syncs, mean", [](const PointResult& p) { return p.sync_gap; },
                    true, std::nullopt));
  return standing_alone(r, y, drawing);
}

}  // namespace tenon::reproduce
