// The numbers of the drawings as CSV; see charts.hpp.
#include "ab/charts.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::ab {
namespace {

constexpr std::size_t kReducedBuckets = 2000;

// Shortest form that reads back equal; empty for a value that is not a number.
std::string cell(double value) {
  return std::isnan(value) ? std::string() : fmt::format("{}", value);
}

void add_point(std::string& out, const std::string& arm, std::int64_t seed, const MetricPoint& p) {
  out += fmt::format("{},{},{},{},{},{},{},{}\n", arm, seed, p.step, cell(p.samples), cell(p.tokens),
                     cell(p.wall_s), cell(p.bytes_sent), cell(p.value));
}

// Two points per bucket of the step range, as in the drawing.
Series reduce(const Series& series) {
  if (series.size() <= 2 * kReducedBuckets) return series;
  const std::vector<Point> points = points_on(series, Axis::kSteps);
  Series out;
  std::size_t next = 0;
  for (const Point& kept : bucket_min_max(points, points.front().x, points.back().x, kReducedBuckets)) {
    while (next < series.size() && static_cast<double>(series[next].step) != kept.x) ++next;
    if (next < series.size()) out.push_back(series[next]);
  }
  return out;
}

}  // namespace

std::string seeds_csv(const StudyResult& result) {
  const Study& study = result.study;
  std::string out = "arm,seed," + study.experiment.metric + "\n";
  for (const ArmRuns& arm : study.arms) {
    for (std::size_t s = 0; s < arm.runs.size(); ++s) {
      if (!arm.runs[s]) continue;
      out += fmt::format("{},{},{}\n", arm.arm.name, study.experiment.seeds[s],
                         cell(arm.runs[s]->final_value(study.experiment.metric).value_or(NAN)));
    }
  }
  return out;
}

std::string curve_csv(const StudyResult& result, const std::string& metric, std::size_t limit,
                      bool& reduced) {
  const Study& study = result.study;
  const auto write = [&](bool reduce_curves) {
    std::string out = "arm,seed,step,samples,tokens,wall_s,bytes_sent," + metric + "\n";
    for (const ArmRuns& arm : study.arms) {
      for (std::size_t s = 0; s < arm.runs.size(); ++s) {
        if (!arm.runs[s]) continue;
        const auto found = arm.runs[s]->series.find(metric);
        if (found == arm.runs[s]->series.end()) continue;
        const Series series = reduce_curves ? reduce(found->second) : found->second;
        for (const MetricPoint& p : series) add_point(out, arm.arm.name, study.experiment.seeds[s], p);
        if (!reduce_curves && out.size() > limit) return out;
      }
    }
    return out;
  };
  std::string out = write(false);
  reduced = out.size() > limit;
  return reduced ? write(true) : out;
}

std::string difference_csv(const StudyResult& result, const Comparison& c, Axis axis) {
  const Study& study = result.study;
  std::string out = fmt::format("{},mean_difference,low,high,sd,n\n", axis_name(axis));
  for (const EstimatePoint& p :
       difference_curve(series_of(study.arms[0], c.primary.metric),
                        series_of(study.arms[c.other], c.primary.metric), axis, study.experiment.alpha)) {
    out += fmt::format("{},{},{},{},{},{}\n", cell(p.x), cell(p.y.mean), cell(p.y.interval.low),
                       cell(p.y.interval.high), cell(p.y.sd), p.y.n);
  }
  return out;
}

std::string target_csv(const StudyResult& result, const Comparison& c) {
  const Study& study = result.study;
  std::string out = "arm,seed,axis,time,reached\n";
  for (const TargetComparison& t : c.targets) {
    for (std::size_t i = 0; i < c.seeds.size(); ++i) {
      out += fmt::format("{},{},{},{},{}\n", study.arms[0].arm.name, c.seeds[i], axis_name(t.axis),
                         cell(t.baseline[i].time), t.baseline[i].reached ? 1 : 0);
      out += fmt::format("{},{},{},{},{}\n", study.arms[c.other].arm.name, c.seeds[i], axis_name(t.axis),
                         cell(t.other[i].time), t.other[i].reached ? 1 : 0);
    }
  }
  return out;
}

}  // namespace tenon::ab
