// The figure of a study of scaling: three panels over the number of trainers; see scaling_render.hpp.
#include "reproduce/scaling_render.hpp"

#include "reproduce/render.hpp"
#include "reproduce/scaling.hpp"

#include <fmt/format.h>

#include <functional>

namespace tenon::reproduce {
namespace {

using Quantity = std::function<std::optional<double>(const PointResult&)>;

LinePanel panel_of(const std::vector<ScalingArm>& arms, const std::string& title, const Quantity& quantity,
                   bool from_zero, const std::optional<double>& slope) {
  LinePanel out{title, {}, from_zero, slope};
  for (const ScalingArm& arm : arms) {
    std::vector<ab::Point>& line = out.lines.emplace_back();
    for (const PointResult& point : arm.points)
      if (const auto value = quantity(point)) line.push_back({static_cast<double>(point.trainers), *value});
  }
  return out;
}

}  // namespace

std::string scaling_figure(const StudyResult& r) {
  std::vector<ScalingArm> arms = scaling_arms(r);
  std::erase_if(arms, [](const ScalingArm& arm) { return arm.measured; });
  LineFigure figure{
      "trainers",
      {},
      fmt::format("{} samples a run, {} seed{}, simulated clock", count(static_cast<double>(r.size.samples)),
                  r.size.seeds.size(), r.size.seeds.size() == 1 ? "" : "s"),
      {}};
  std::optional<double> slope;  // thousand examples per second of one trainer
  for (const ScalingArm& arm : arms) {
    figure.names.push_back(arm.title);
    for (const PointResult& point : arm.points)
      if (!slope && point.trainers == 1 && point.examples_per_s) slope = *point.examples_per_s / 1000;
  }
  figure.panels = {
      panel_of(
          arms, "thousand examples/s, simulated",
          [](const PointResult& p) -> std::optional<double> {
            return p.examples_per_s ? std::optional(*p.examples_per_s / 1000) : std::nullopt;
          },
          true, slope),
      panel_of(
          arms, r.study.metric,
          [](const PointResult& p) { return p.loss ? std::optional(p.loss->mean) : std::nullopt; }, false,
          std::nullopt),
      panel_of(
          arms, "slots between two syncs, mean", [](const PointResult& p) { return p.sync_gap; }, true,
          std::nullopt)};
  return line_figure(r, figure);
}

}  // namespace tenon::reproduce
