// The figure of a study of slabs; see slabs_render.hpp.
#include "reproduce/slabs_render.hpp"

#include "reproduce/render.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::reproduce {

std::string slab_figure(const StudyResult& r) {
  LineFigure figure{
      .x_title = "log2 of the ranks",
      .names = {},
      .under_title = "computing measured on one rank, links by formula",
      .panels = {
          {.title = "efficiency, %, predicted", .lines = {}, .from_zero = true, .slope = {}},
          {.title = "efficiency, %, latencies added up", .lines = {}, .from_zero = true, .slope = {}}}};
  for (const SlabArm& arm : r.slabs->arms) {
    for (std::size_t i = 0; i < r.study.slabs->links.size(); ++i) {
      figure.names.push_back(fmt::format("{}, {}", arm.title, r.study.slabs->links[i].title));
      for (LinePanel& panel : figure.panels) {
        std::vector<ab::Point>& line = panel.lines.emplace_back();
        for (const SlabPoint& point : arm.points) {
          const std::optional<double> share =
              (&panel == &figure.panels.front() ? point.overlapped : point.added)[i].efficiency;
          if (share) line.push_back({std::log2(static_cast<double>(point.ranks)), 100 * *share});
        }
      }
    }
  }
  return line_figure(r, figure);
}

}  // namespace tenon::reproduce
