// The figure of a study of simulations; see map_render.hpp.
#include "reproduce/map_render.hpp"

#include "reproduce/render.hpp"

#include <fmt/format.h>

namespace tenon::reproduce {

std::string map_figure(const StudyResult& r) {
  LinePanel rates{.title = "tasks/s, measured", .lines = {}, .from_zero = true, .slope = {}},
      shares{.title = "efficiency, %, measured", .lines = {}, .from_zero = true, .slope = {}};
  LineFigure figure{.x_title = "worker processes",
                    .names = {},
                    .under_title = fmt::format("{} tasks a simulation", r.size.samples),
                    .panels = {}};
  for (std::size_t arm = 0; arm < r.study.arms.size(); ++arm) {
    figure.names.push_back(r.study.arms[arm].title);
    std::vector<ab::Point>&rate = rates.lines.emplace_back(), &share = shares.lines.emplace_back();
    for (const MapPoint& point : r.map->points) {
      if (point.arm != arm) continue;
      const auto workers = static_cast<double>(point.workers);
      if (point.rate) rate.push_back({workers, point.rate->mean});
      if (point.efficiency) share.push_back({workers, 100 * point.efficiency->mean});
    }
  }
  figure.panels = {std::move(rates), std::move(shares)};
  return line_figure(r, figure);
}

}  // namespace tenon::reproduce
