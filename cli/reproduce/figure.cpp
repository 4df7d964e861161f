// figure.svg: a drawing that stands alone, light and dark, with the paper's numbers beside ours; see
// render.hpp.
#include "reproduce/render.hpp"

#include "ab/curves.hpp"
#include "ab/format.hpp"
#include "ab/plot.hpp"
#include "ab/report.hpp"
#include "report/line_chart.hpp"
#include "reproduce/bytes_figure.hpp"
#include "reproduce/map_render.hpp"
#include "reproduce/recovery_render.hpp"
#include "reproduce/scaling_render.hpp"
#include "reproduce/slabs_render.hpp"
#include "reproduce/time_to_render.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::reproduce {
namespace {

constexpr double kWidth = kFigureWidth, kRow = 34, kTop = 64, kFoot = 44, kLabels = 250;
constexpr double kCurveHeight = 380;
constexpr std::size_t kRowGlyphs = 36;  // of a title beside its row

/// Values of one arm: every run or pair, and their mean.
struct Row {
  std::string title, name;
  std::vector<double> each;
  std::optional<ab::MeanEstimate> mean;
  bool beyond = false;  ///< so far off that an axis with it would show nothing else

  /// Values that the axis has to include.
  std::vector<double> extent() const {
    std::vector<double> values = each;
    if (mean && mean->n > 1) values.insert(values.end(), {mean->interval.low, mean->interval.high});
    return values;
  }
};

constexpr double kBeyond = 3;  ///< times all others: a control that must fail

/// At most one row, of at least two.
void mark_beyond(std::vector<Row>& rows) {
  if (rows.size() < 2) return;
  const auto most = [](const Row& row) {
    double largest = 0;
    for (const double value : row.extent()) largest = std::max(largest, std::abs(value));
    return largest;
  };
  const auto outermost = std::max_element(rows.begin(), rows.end(),
                                          [&](const Row& a, const Row& b) { return most(a) < most(b); });
  double others = 0;
  for (auto row = rows.begin(); row != rows.end(); ++row)
    if (row != outermost) others = std::max(others, most(*row));
  outermost->beyond = std::all_of(outermost->each.begin(), outermost->each.end(),
                                  [&](double value) { return std::abs(value) > kBeyond * others; });
}

std::vector<Row> rows_of(const StudyResult& r) {
  std::vector<Row> rows;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const ArmResult& arm = r.arms[a];
    const StudyArm& what = r.study.arms[a];
    Row row{shortened(what.title, kRowGlyphs), what.arm.name, {}, {}};
    if (r.study.figure == Figure::kShares) {
      if (arm.shares.empty() || !arm.shares[0].percent) continue;
      row.each = {*arm.shares[0].percent};
      row.mean = ab::mean_with_interval(row.each, r.study.alpha);
    } else {
      if (what.arm.name == what.baseline) continue;
      row.each = arm.gaps;
      row.mean = arm.gap;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void heading(ab::Svg& svg, const StudyResult& r, bool paper) {
  svg.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  const std::string seeds = fmt::format("{} seed{}, {} updates", r.size.seeds.size(),
                                        r.size.seeds.size() == 1 ? "" : "s", r.size.steps);
  if (!caution(r.size).empty()) {
    svg.text({16, 46}, caution(r.size), "warn", ab::Anchor::kStart);
  } else {
    svg.text({16, 46}, seeds, "tick", ab::Anchor::kStart);
  }
  if (!paper) return;
  svg.marker(ab::Marker::kCircle, {kWidth - 290, 42}, 4, "mean-mark", "");
  svg.text({kWidth - 280, 46}, "here, with interval", "tick", ab::Anchor::kStart);
  svg.marker(ab::Marker::kDiamond, {kWidth - 146, 42}, 5, "paper", "");
  svg.text({kWidth - 134, 46}, "paper, large model", "tick", ab::Anchor::kStart);
}

std::string row_figure(const StudyResult& r) {
  std::vector<Row> rows = rows_of(r);
  const bool shares = r.study.figure == Figure::kShares;
  if (!shares) mark_beyond(rows);
  std::vector<double> values;
  if (!shares) values.push_back(0);
  for (const Row& row : rows) {
    const std::vector<double> extent = row.extent();
    if (!row.beyond) values.insert(values.end(), extent.begin(), extent.end());
  }
  for (const PaperValue& value : r.study.paper_values) values.push_back(value.value);
  const ab::Range range = ab::range_of(values, 0.06);
  const double height = kTop + kRow * static_cast<double>(std::max<std::size_t>(rows.size(), 1)) + kFoot;
  ab::Svg svg(kWidth, height, "chart", r.study.title);
  const ab::Frame frame(
      svg,
      {.x = range,
       .y = {0, 1},
       .x_title = shares
                      ? fmt::format("{}, %", r.study.shares[0].substr(r.study.shares[0].find('/') + 1))
                      : fmt::format("gap to {} in {}, %; negative = worse", r.study.baseline, r.study.metric),
       .y_title = "",
       .x_is_quantity = false,
       .draw_y = false,
       .left = kLabels});
  heading(svg, r, true);
  if (!shares) svg.line({frame.x(0), kTop - 6}, {frame.x(0), frame.bottom()}, "zero");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    svg.text({kLabels - 12, y + 4}, row.title, "label", ab::Anchor::kEnd);
    svg.line({frame.left(), y + kRow / 2}, {frame.right(), y + kRow / 2}, "grid");
    if (!row.mean) {
      svg.text({frame.left() + 8, y + 4}, "no value: see table.md", "tick", ab::Anchor::kStart);
    } else if (row.beyond) {
      const bool left = row.mean->mean < 0;
      const std::string text = fmt::format("{}{}{}, beyond this axis", left ? "◀ " : "",
                                           ab::fixed_signed(row.mean->mean, 1), left ? "" : " ▶");
      svg.text({left ? frame.left() + 8 : frame.right() - 8, y + 4}, text, "tick",
               left ? ab::Anchor::kStart : ab::Anchor::kEnd);
    } else {
      if (row.mean->n > 1)
        svg.line({frame.x(row.mean->interval.low), y}, {frame.x(row.mean->interval.high), y}, "interval");
      for (const double value : row.each)
        svg.marker(ab::Marker::kCircle, {frame.x(value), y}, 3, "faint arm0", ab::fixed_signed(value, 2));
      svg.marker(ab::Marker::kCircle, {frame.x(row.mean->mean), y}, 4.5, "mean-mark",
                 fmt::format("mean {}", ab::fixed_signed(row.mean->mean, 2)));
    }
    for (const PaperValue& value : r.study.paper_values) {
      if (value.arm == row.name)
        svg.marker(
            ab::Marker::kDiamond, {frame.x(value.value), y}, 5, "paper",
            fmt::format("paper: {} ({}, {})", ab::fixed_signed(value.value, 2), value.what, value.source));
    }
  }
  return standing_alone(r, height, svg.take());
}

std::string curve_figure(const StudyResult& r) {
  std::vector<report::ChartLine> lines;
  for (std::size_t a = 0; a < r.arms.size() && lines.size() < 6; ++a) {
    const StudyArm& what = r.study.arms[a];
    const auto& wanted = r.study.curves;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), what.arm.name) == wanted.end()) continue;
    for (const RunResult& run : r.arms[a].runs) {
      if (!run.record) continue;
      const auto found = run.record->series.find(r.study.figure_metric);
      if (found == run.record->series.end()) continue;
      lines.push_back({what.title, &found->second, lines.size()});
      break;  // the first seed that has a curve
    }
  }
  ab::Svg top(kWidth, kTop, "chart", "");
  heading(top, r, false);
  const std::size_t legend_rows = (lines.size() + 1) / 2;  // two columns
  const double legend_height = 20 * static_cast<double>(legend_rows) + 8;
  ab::Svg legend(kWidth, legend_height, "chart", "");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t row = i / 2, column = i % 2;
    const double x = 24 + static_cast<double>(column) * kWidth / 2, y = 14 + 20 * static_cast<double>(row);
    const std::string colour = fmt::format("arm{}", lines[i].colour);
    const ab::Point stroke[] = {{x, y}, {x + 26, y}};
    legend.polyline(stroke, "curve " + colour, "");
    legend.text({x + 34, y + 4}, lines[i].name, "label", ab::Anchor::kStart);
  }
  std::string drawing;
  const auto placed = [&](double y, double height, const std::string& inner) {
    drawing += fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", y, kWidth,
                           height, inner);
  };
  placed(0, kTop, top.take());
  placed(kTop, legend_height, legend.take());
  if (!lines.empty()) {
    placed(kTop + legend_height, kCurveHeight,
           report::line_chart(lines, r.study.figure_metric, ab::Axis::kSteps, {kWidth, kCurveHeight},
                              report::scale_of(lines, ab::Axis::kSteps)));
  }
  return standing_alone(r, kTop + legend_height + kCurveHeight, drawing);
}

}  // namespace

std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // inside a glyph of UTF-8
  return text.substr(0, end) + "…";
}

std::string standing_alone(const StudyResult& r, double height, const std::string& drawing) {
  const std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n<style>{3}\n"
      ".page{{fill:var(--page)}}.paper{{fill:none;stroke:var(--arm1);stroke-width:1.8}}"
      ".title{{fill:var(--ink);font-size:15px;font-weight:600}}.warn{{fill:var(--bad);font-weight:600}}"
      "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
      kFigureWidth, height, ab::escape_html(r.study.title), ab::kReportStyle);
  return out + drawing + "\n</svg>\n";
}

std::string figure_svg(const StudyResult& result) {
  if (result.study.scaling) return scaling_figure(result);
  if (result.slabs) return slab_figure(result);
  if (result.map) return map_figure(result);
  double height = 0;
  if (result.recovery && !result.recovery->fits.empty()) return recovery_lines_figure(result);
  if (result.recovery) {
    const std::string drawing = recovery_figure(result, kWidth, height);
    return standing_alone(result, height, drawing);
  }
  if (result.time_to) {
    const std::string drawing = time_to_figure(result, kTop, kWidth, height);
    return standing_alone(result, height, drawing);
  }
  if (result.study.figure == Figure::kBytes) {
    const std::string drawing = bytes_figure(result, kWidth, height);
    return standing_alone(result, height, drawing);
  }
  return result.study.figure == Figure::kCurves ? curve_figure(result) : row_figure(result);
}

}  // namespace tenon::reproduce
