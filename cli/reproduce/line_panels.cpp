// Drawing of line_panels.hpp.
#include "reproduce/line_panels.hpp"

#include "ab/plot.hpp"
#include "reproduce/render.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::reproduce {
namespace {

constexpr double kPanelsTop = 60, kLegendRow = 20, kPanel = 270, kMargin = 0.06;
constexpr std::size_t kPanelColours = 6;

/// Lines beyond the colours of the style sheet reuse them, dashed.
std::string style_of(std::size_t line) {
  return fmt::format("arm{}{}", line % kPanelColours, line < kPanelColours ? "" : " again");
}

std::string panel_drawing(const LineFigure& figure, const LinePanel& panel) {
  std::vector<double> x{0}, y;
  if (panel.from_zero) y.push_back(0);
  for (const std::vector<ab::Point>& line : panel.lines) {
    for (const ab::Point& point : line) {
      x.push_back(point.x);
      y.push_back(point.y);
    }
  }
  const double most = *std::max_element(x.begin(), x.end());
  if (panel.slope) y.push_back(*panel.slope * most);
  ab::Range y_range = ab::range_of(y, kMargin);
  if (panel.from_zero) y_range.low = 0;
  ab::Svg svg(kFigureWidth, kPanel, "chart", panel.title);
  const ab::Frame frame(svg, {.x = {0, std::max(most * 1.03, 1.0)},
                              .y = y_range,
                              .x_title = figure.x_title,
                              .y_title = panel.title,
                              .x_is_quantity = false,
                              .left = 84});
  if (panel.slope) {
    svg.line(frame.at(0, 0), frame.at(most, *panel.slope * most), "zero");
    svg.text({frame.x(most) - 44, frame.y(*panel.slope * most) + 6}, "linear", "tick", ab::Anchor::kEnd);
  }
  for (std::size_t i = 0; i < panel.lines.size(); ++i) {
    const std::string& name = figure.names.at(i);
    std::vector<ab::Point> at;
    for (const ab::Point& point : panel.lines[i]) at.push_back(frame.at(point.x, point.y));
    svg.polyline(at, "curve " + style_of(i), name);
    for (const ab::Point& point : at) svg.marker(ab::marker_of(i), point, 3.2, "dot " + style_of(i), name);
  }
  return svg.take();
}

std::string legend_drawing(const std::vector<std::string>& names, double height) {
  ab::Svg svg(kFigureWidth, height, "chart", "");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t row = i / 2;
    const double x = 24 + static_cast<double>(i % 2) * kFigureWidth / 2;
    const double y = 12 + kLegendRow * static_cast<double>(row);
    const ab::Point stroke[] = {{x, y}, {x + 30, y}};
    svg.polyline(stroke, "curve " + style_of(i), "");
    svg.marker(ab::marker_of(i), {x + 15, y}, 3.2, "dot " + style_of(i), "");
    svg.text({x + 38, y + 4}, names[i], "label", ab::Anchor::kStart);
  }
  return svg.take();
}

}  // namespace

std::string line_figure(const StudyResult& r, const LineFigure& figure) {
  ab::Svg top(kFigureWidth, kPanelsTop, "chart", "");
  top.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  const bool warned = !caution(r.size).empty();
  top.text({16, 46}, warned ? caution(r.size) : figure.under_title, warned ? "warn" : "tick",
           ab::Anchor::kStart);
  std::string drawing =
      "<style>svg .again{stroke-dasharray:6 4}svg .dot.again{stroke-dasharray:none}</style>\n";
  double y = 0;
  const auto place = [&](double height, const std::string& inner) {
    drawing += fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", y, kFigureWidth,
                           height, inner);
    y += height;
  };
  const std::size_t legend_rows = (figure.names.size() + 1) / 2;
  const double legend_height = kLegendRow * static_cast<double>(legend_rows) + 14;
  place(kPanelsTop, top.take());
  place(legend_height, legend_drawing(figure.names, legend_height));
  for (const LinePanel& panel : figure.panels) place(kPanel, panel_drawing(figure, panel));
  return standing_alone(r, y, drawing);
}

}  // namespace tenon::reproduce
