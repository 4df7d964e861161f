// Time to the baseline's loss by link, one block of rows per arm; see time_to_render.hpp. Runs that end
// before the threshold are open triangles at that end.
#include "ab/format.hpp"
#include "ab/plot.hpp"
#include "ab/svg.hpp"
#include "reproduce/render.hpp"
#include "reproduce/time_to_render.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::reproduce {
namespace {

constexpr double kLine = 13, kPad = 12, kHead = 26, kLegend = 22, kBlocksFoot = 44, kBlocksLabels = 225;
constexpr std::size_t kBlockGlyphs = 34;  // of a title beside its rows
constexpr std::size_t kColours = 6;

std::string colour(std::size_t link) {
  return fmt::format("arm{}", link % kColours);
}

/// Arms in the study's order, those of one baseline together, the baseline first.
std::vector<std::vector<std::size_t>> groups_of(const StudyFile& study) {
  std::vector<std::vector<std::size_t>> out;
  for (std::size_t b = 0; b < study.arms.size(); ++b) {
    if (study.arms[b].arm.name != study.arms[b].baseline) continue;
    out.push_back({b});
    for (std::size_t a = 0; a < study.arms.size(); ++a)
      if (a != b && study.arms[a].baseline == study.arms[b].arm.name) out.back().push_back(a);
  }
  return out;
}

void draw_runs(ab::Svg& svg, const ab::Frame& frame, const ToThreshold& to, const std::string& title,
               double y, std::size_t link) {
  const std::string tone = colour(link);
  if (!to.seconds) {
    svg.text({frame.left() + 8, y + 4}, "no value", "tick", ab::Anchor::kStart);
    return;
  }
  if (to.seconds->n > 1)
    svg.line({frame.x(to.seconds->low.value), y}, {frame.x(to.seconds->high.value), y}, "span " + tone);
  for (const auto& run : to.runs) {
    if (!run) continue;
    const ab::Point at{frame.x(run->at.seconds), y};
    const std::string hover =
        fmt::format("{}: {}{} s", title, run->reached ? "" : "> ", ab::compact(run->at.seconds));
    if (run->reached) {
      svg.marker(ab::Marker::kCircle, at, 3, "dot " + tone, hover);
    } else {
      svg.marker(ab::Marker::kTriangle, at, 5, "late " + tone, hover);
    }
  }
  if (!to.seconds->median.bound) {
    const double x = frame.x(to.seconds->median.value);
    svg.line({x, y - 6}, {x, y + 6}, "median " + tone);
  }
}

}  // namespace

std::string time_to_figure(const StudyResult& r, double top, double width, double& height) {
  const TimeToResult& t = *r.time_to;
  const double block = kLine * static_cast<double>(t.links.size()) + kPad;
  const std::vector<std::vector<std::size_t>> groups = groups_of(r.study);
  const double begin = top + kLegend * (t.links.size() > 3 ? 2 : 1) + kHead;
  height = begin + block * static_cast<double>(t.arms.size()) + kPad * static_cast<double>(groups.size()) +
           kBlocksFoot;
  std::vector<double> extent{0};
  for (const TimeToArm& arm : t.arms)
    for (const TimedArm& link : arm.links)
      for (const auto& run : link.strict.runs)
        if (run) extent.push_back(run->at.seconds);
  ab::Range range = ab::range_of(extent, 0.04);
  range.low = 0;
  ab::Svg svg(width, height, "chart", r.study.title);
  const ab::Frame frame(svg, {.x = range,
                              .y = {0, 1},
                              .x_title = fmt::format("{} to the baseline's {}, s",
                                                     t.simulated ? "simulated time" : "time", r.study.metric),
                              .y_title = "",
                              .x_is_quantity = false,
                              .draw_y = false,
                              .left = kBlocksLabels});
  svg.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  const std::string warning = caution(r.size);
  if (!warning.empty()) svg.text({16, 44}, warning, "warn", ab::Anchor::kStart);
  for (std::size_t l = 0; l < t.links.size(); ++l) {
    const std::size_t row = l / 3;
    const double x = 24 + static_cast<double>(l % 3) * (width - 24) / 3,
                 y = top + kLegend * static_cast<double>(row);
    svg.marker(ab::Marker::kCircle, {x, y}, 4, "dot " + colour(l), "");
    svg.text({x + 12, y + 4}, "link: " + t.links[l], "label", ab::Anchor::kStart);
  }
  const double key = begin - kHead + 8;
  svg.text({24, key + 4}, "dots: seeds; bar: their median; dashed: the baseline's median;", "tick",
           ab::Anchor::kStart);
  svg.marker(ab::Marker::kTriangle, {414, key}, 5, "late arm0", "");
  svg.text({424, key + 4}, "not there when the run ended", "tick", ab::Anchor::kStart);
  double y = begin;
  for (const std::vector<std::size_t>& group : groups) {
    const double end = y + block * static_cast<double>(group.size());
    for (std::size_t l = 0; l < t.links.size(); ++l) {
      const auto& seconds = t.arms[group[0]].links[l].strict.seconds;
      if (seconds)
        svg.line({frame.x(seconds->median.value), y}, {frame.x(seconds->median.value), end},
                 "base " + colour(l));
    }
    for (const std::size_t a : group) {
      const std::string& title = r.study.arms[a].title;
      svg.text({kBlocksLabels - 12, y + block / 2 + 1}, shortened(title, kBlockGlyphs), "label",
               ab::Anchor::kEnd);
      for (std::size_t l = 0; l < t.links.size(); ++l)
        draw_runs(svg, frame, t.arms[a].links[l].strict, title + ", " + t.links[l],
                  y + kPad / 2 + kLine * (static_cast<double>(l) + 0.5), l);
      y += block;
      svg.line({frame.left(), y}, {frame.right(), y}, "grid");
    }
    y += kPad;
  }
  std::string style;
  for (std::size_t c = 0; c < kColours; ++c)
    style += fmt::format(
        ".{0}.dot{{fill:var(--{0})}}.{0}.span,.{0}.median,.{0}.base,.{0}.late{{stroke:var(--{0})}}",
        colour(c));
  return "<style>" + style +
         ".span{stroke-width:1.2;opacity:.6}.median{stroke-width:2.6}.late{fill:var(--page);stroke-width:1.5}"
         ".base{stroke-dasharray:3 3;stroke-width:1;opacity:.7}</style>\n" +
         svg.take();
}

}  // namespace tenon::reproduce
