// The figure of a study of recovery: a bar per arm, divided by the causes of its charged hours.
#include "ab/format.hpp"
#include "ab/svg.hpp"
#include "reproduce/recovery_render.hpp"
#include "reproduce/render.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::reproduce {
namespace {

constexpr double kRowHeight = 24, kTopMargin = 92, kLeft = 240, kRight = 90, kBottom = 44, kBar = 14;
constexpr const char* kParts[] = {"saves", "loads", "restarts", "work done twice"};

/// A round step for about `count` ticks up to `most`.
double tick_step(double most, int count) {
  const double raw = most / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string recovery_lines_figure(const StudyResult& r) {
  LineFigure figure{.x_title = "portion of lost samples (PLS)",
                    .names = {},
                    .under_title = "means over pairs of equal seeds",
                    .panels = {{.title = fmt::format("{}, difference to no failure", r.study.metric),
                                .lines = {},
                                .from_zero = false,
                                .slope = {}}}};
  for (const RecoveryFit& fit : r.recovery->fits) {
    figure.names.push_back(fit.title);
    std::vector<ab::Point>& line = figure.panels.front().lines.emplace_back();
    for (const RecoveryFit::Point& point : fit.points) line.push_back({point.pls, point.difference.mean});
  }
  return line_figure(r, figure);
}

std::string recovery_figure(const StudyResult& r, double width, double& height) {
  std::vector<std::size_t> shown;
  double most = 0;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const RecoveryArm& arm = r.recovery->arms[a];
    if (arm.runs.empty()) continue;
    shown.push_back(a);
    most = std::max(most, arm.overhead_percent->mean);
  }
  height = kTopMargin + kRowHeight * static_cast<double>(shown.size()) + kBottom;
  ab::Svg svg(width, height, "chart", r.study.title);
  svg.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  svg.text({16, 46},
           caution(r.size).empty() ? "overhead in per cent of productive hours; mean over the seeds"
                                   : caution(r.size),
           caution(r.size).empty() ? "tick" : "warn", ab::Anchor::kStart);
  double x = 16;
  for (std::size_t part = 0; part < std::size(kParts); ++part) {
    svg.rect({x, 60}, 12, 12, fmt::format("area arm{}", part));
    svg.text({x + 18, 70}, kParts[part], "label", ab::Anchor::kStart);
    x += 34 + 7.2 * static_cast<double>(std::string_view(kParts[part]).size());
  }
  const double bottom = height - kBottom;
  const double step = most > 0 ? tick_step(most, 6) : 1;
  const double end = std::max(step, step * std::ceil(most / step));
  const auto at = [&](double percent) { return kLeft + (width - kLeft - kRight) * percent / end; };
  for (double tick = 0; tick <= end + step / 2; tick += step) {
    svg.line({at(tick), kTopMargin - 8}, {at(tick), bottom}, "grid");
    svg.text({at(tick), bottom + 17}, fmt::format("{:g}", tick), "tick", ab::Anchor::kMiddle);
  }
  svg.text({(kLeft + width - kRight) / 2, bottom + 36}, "overhead, %", "axis-title", ab::Anchor::kMiddle);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const RecoveryArm& arm = r.recovery->arms[shown[i]];
    const double top = kTopMargin + kRowHeight * static_cast<double>(i);
    svg.text({kLeft - 10, top + kBar - 2}, r.study.arms[shown[i]].title, "label", ab::Anchor::kEnd);
    const double hours = arm.charged.total();
    double from = 0;
    std::size_t part = 0;
    for (const double charged :
         {arm.charged.save, arm.charged.load, arm.charged.restart, arm.charged.repeat}) {
      const double percent = hours > 0 ? arm.overhead_percent->mean * charged / hours : 0;
      if (percent > 0)
        svg.rect({at(from), top}, at(from + percent) - at(from), kBar, fmt::format("area arm{}", part));
      from += percent;
      ++part;
    }
    svg.text({at(from) + 6, top + kBar - 2}, ab::fixed(arm.overhead_percent->mean, 2), "label",
             ab::Anchor::kStart);
  }
  return svg.take();
}

}  // namespace tenon::reproduce
