// See bytes_figure.hpp.
#include "reproduce/bytes_figure.hpp"

#include "ab/format.hpp"
#include "ab/plot.hpp"
#include "ab/svg.hpp"
#include "reproduce/render.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::reproduce {
namespace {

constexpr double kHeight = 480, kBytesTop = 58, kLabel = 14, kGlyph = 7;
constexpr int kMostMoves = 31;  // of a name, up and down

struct Mark {
  std::string name;
  double x = 0, mean = 0;
  std::vector<double> values;
  std::size_t arm = 0;
};

std::vector<Mark> marks_of(const StudyResult& r) {
  std::vector<Mark> out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const ArmResult& arm = r.arms[a];
    if (arm.bytes <= 0 || !arm.value) continue;
    Mark mark{.name = r.study.arms[a].arm.name,
              .x = std::log10(arm.bytes),
              .mean = arm.value->mean,
              .values = {},
              .arm = a};
    for (const RunResult& run : arm.runs)
      if (run.value) mark.values.push_back(*run.value);
    out.push_back(std::move(mark));
  }
  return out;
}

/// A rectangle that text or a mark covers.
struct Box {
  double left, right, top, bottom;
  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

/// Names beside their marks, moved up or down or to the other side until they overlap nothing, and then
/// connected to their marks by a line.
void draw_names(ab::Svg& svg, const ab::Frame& frame, const std::vector<Mark>& marks) {
  std::vector<Box> covered;
  for (const Mark& mark : marks) {
    const double x = frame.x(mark.x), y = frame.y(mark.mean);
    covered.push_back({x - 6, x + 6, y - 6, y + 6});
  }
  for (const Mark& mark : marks) {
    const double x = frame.x(mark.x), y = frame.y(mark.mean);
    const double wide = kGlyph * static_cast<double>(mark.name.size());
    for (int i = 0; i < 2 * kMostMoves; ++i) {
      const bool left = i % 2 == 1;
      const int move = (i / 2 + 1) / 2 * (i / 2 % 2 == 1 ? -1 : 1);  // 0, -1, 1, -2, 2, ...
      const double away = 9 + 4.0 * std::abs(move), middle = y + kLabel * move;
      const double begin = left ? x - away - wide : x + away;
      const Box box{begin, begin + wide, middle - kLabel / 2, middle + kLabel / 2};
      const bool inside = box.left > frame.left() && box.right < svg.width() && box.top > frame.top() &&
                          box.bottom < frame.bottom();
      const bool last = i + 1 == 2 * kMostMoves;
      if (!last && (!inside || std::any_of(covered.begin(), covered.end(),
                                           [&](const Box& other) { return other.meets(box); })))
        continue;
      if (move != 0) svg.line({x, y}, {left ? box.right + 2 : box.left - 2, middle}, "axis");
      svg.text({begin, middle + 4}, mark.name, "label", ab::Anchor::kStart);
      covered.push_back(box);
      break;
    }
  }
}

}  // namespace

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> out;
  for (double power = std::floor(std::log10(low)); power <= std::ceil(std::log10(high)); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      if (tick >= low && tick <= high) out.push_back(tick);
    }
  }
  return out;
}

std::string bytes_figure(const StudyResult& r, double width, double& height) {
  height = kHeight;
  const std::vector<Mark> marks = marks_of(r);
  std::vector<double> x, y;
  for (const Mark& mark : marks) {
    x.push_back(mark.x);
    y.insert(y.end(), mark.values.begin(), mark.values.end());
  }
  ab::Svg outer(width, kBytesTop, "chart", r.study.title);
  outer.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  outer.text({16, 46}, caution(r.size).empty() ? "dots: runs; rings: means over the seeds" : caution(r.size),
             caution(r.size).empty() ? "tick" : "warn", ab::Anchor::kStart);
  ab::Svg svg(width, kHeight - kBytesTop, "chart", "");
  const ab::Range range = ab::range_of(x, 0.08);
  const ab::Frame frame(svg, {.x = range,
                              .y = ab::range_of(y, 0.12),
                              .x_title = "",
                              .y_title = r.study.metric,
                              .x_is_quantity = false,
                              .draw_x = false});
  for (const double tick : log_ticks(std::pow(10, range.low), std::pow(10, range.high))) {
    const double at = frame.x(std::log10(tick));
    svg.line({at, frame.top()}, {at, frame.bottom()}, "grid");
    svg.text({at, frame.bottom() + 17}, fmt::format("{:g}", tick / 1e6), "tick", ab::Anchor::kMiddle);
  }
  svg.text({(frame.left() + frame.right()) / 2, kHeight - kBytesTop - 5},
           "MB sent per rank, gradients and weights (log)", "axis-title", ab::Anchor::kMiddle);
  for (const Mark& mark : marks) {
    for (const double value : mark.values)
      svg.marker(ab::Marker::kCircle, {frame.x(mark.x), frame.y(value)}, 3, "faint arm0",
                 fmt::format("{}: {}", mark.name, ab::fixed(value, 4)));
    svg.marker(ab::Marker::kCircle, {frame.x(mark.x), frame.y(mark.mean)}, 5, "mean-mark",
               fmt::format("{}: mean {}", mark.name, ab::fixed(mark.mean, 4)));
  }
  draw_names(svg, frame, marks);
  const auto placed = [&](double at, double high, const std::string& drawing) {
    return fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", at, width, high,
                       drawing);
  };
  return placed(0, kBytesTop, outer.take()) + placed(kBytesTop, kHeight - kBytesTop, svg.take());
}

}  // namespace tenon::reproduce
