// Writes what csv.hpp says. Numbers have the shortest form that reads back equal.
#include "ab/csv.hpp"

#include "ab/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace tenon::ab {
namespace {

constexpr std::size_t kReducedBuckets = 2000;
constexpr std::size_t kWholeCurve = 2 * kReducedBuckets;  // points

// Empty for a value that is not a number.
std::string cell(double value) {
  return std::isnan(value) ? std::string() : fmt::format("{}", value);
}

void add_point(std::string& out, const std::string& arm, std::int64_t seed, const MetricPoint& p) {
  out += fmt::format("{},{},{},{},{},{},{},{}\n", arm, seed, p.step, cell(p.samples), cell(p.tokens),
                     cell(p.wall_s), cell(p.bytes_sent), cell(p.value));
}

// Two points per bucket of the step range, as in the drawing.
Series reduce(const Series& series) {
  if (series.size() <= kWholeCurve) return series;
  const std::vector<Point> points = points_on(series, Axis::kSteps);
  Series out;
  std::size_t next = 0;
  for (const Point& kept : bucket_min_max(points, points.front().x, points.back().x, kReducedBuckets)) {
    while (next < series.size() && static_cast<double>(series[next].step) != kept.x) ++next;
    if (next < series.size()) out.push_back(series[next]);
  }
  return out;
}

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

std::string cells_csv(const StudyResult& result) {
  const Experiment& e = result.study.experiment;
  std::string out;
  for (const Factor& factor : e.factors) out += factor.name + ",";
  out += "seed,value\n";
  for (std::size_t combination = 0; combination < result.factorial->values.size(); ++combination) {
    const std::vector<std::size_t> levels = levels_of_cell(e.factors, combination);
    for (std::size_t s = 0; s < e.seeds.size(); ++s) {
      for (std::size_t f = 0; f < e.factors.size(); ++f) out += e.factors[f].levels[levels[f]].name + ",";
      out += fmt::format("{},{}\n", e.seeds[s], cell(result.factorial->values[combination][s]));
    }
  }
  return out;
}

std::string curve_csv(const StudyResult& result, const std::string& metric) {
  const Study& study = result.study;
  std::string out = "arm,seed,step,samples,tokens,wall_s,bytes_sent," + metric + "\n";
  for (const ArmRuns& arm : study.arms) {
    for (std::size_t s = 0; s < arm.runs.size(); ++s) {
      if (!arm.runs[s]) continue;
      const auto found = arm.runs[s]->series.find(metric);
      if (found == arm.runs[s]->series.end()) continue;
      for (const MetricPoint& p : reduce(found->second))
        add_point(out, arm.arm.name, study.experiment.seeds[s], p);
    }
  }
  return out;
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

std::string looks_csv(const Comparison& c) {
  std::string out = "pairs,mean,low,high,log_e_difference,log_e_above_low,log_e_below_high\n";
  const auto bound = [](const std::optional<double>& v) { return v ? fmt::format("{}", *v) : std::string(); };
  for (const Evidence& e : c.sequential->course.looks) {
    out += fmt::format("{},{},{},{},{},{},{}\n", e.pairs, e.mean, e.interval.low, e.interval.high, e.log_e,
                       bound(e.log_e_above), bound(e.log_e_below));
  }
  return out;
}

std::string trials_csv(const Tuning& tuning) {
  std::string out = "arm";
  for (const TunedKey& key : tuning.rule.keys) out += "," + key.name;
  out += ",seed,value,mean,smoothed\n";
  for (const Basin& basin : tuning.basins) {
    for (const Trial& trial : basin.trials) {
      for (std::size_t s = 0; s < tuning.rule.seeds.size(); ++s) {
        out += basin.arm;
        for (std::size_t k = 0; k < tuning.rule.keys.size(); ++k) {
          const TunedKey& key = tuning.rule.keys[k];
          out += "," + (key.belongs_to(basin.arm) ? key.setting(trial.position[k]) : "");
        }
        out +=
            fmt::format(",{},{},{},{}\n", tuning.rule.seeds[s], trial.values[s], trial.mean, trial.smoothed);
      }
    }
  }
  return out;
}

}  // namespace

bool curve_is_reduced(const Study& study, const std::string& metric) {
  for (const ArmRuns& arm : study.arms) {
    for (const Series* series : series_of(arm, metric)) {
      if (series->size() > kWholeCurve) return true;
    }
  }
  return false;
}

std::string csv_name(std::string_view what, std::string_view of) {
  std::string out(what);
  if (!of.empty()) out += fmt::format("-{}", of);
  for (char& c : out) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  return out + ".csv";
}

std::string training_metric(const std::string& metric) {
  return "train" + metric.substr(std::min(metric.size(), metric.find('/')));
}

std::vector<CsvFile> csv_files(const StudyResult& result) {
  const Study& study = result.study;
  std::vector<CsvFile> out;
  if (study.tuning) out.push_back({csv_name("tuning"), trials_csv(*study.tuning)});
  if (study.experiment.seeds.empty()) return out;  // there are no runs
  out.push_back({csv_name("final_values"), seeds_csv(result)});
  if (result.factorial) out.push_back({csv_name("cells"), cells_csv(result)});
  const std::string& metric = study.experiment.metric;
  std::vector<std::string> drawn{metric};
  if (training_metric(metric) != metric) drawn.push_back(training_metric(metric));
  for (const std::string& name : drawn) {
    if (!usable_axes(study, name).empty()) out.push_back({csv_name("curves", name), curve_csv(result, name)});
  }
  for (const Comparison& c : result.comparisons) {
    const std::string& arm = study.arms[c.other].arm.name;
    if (!usable_axes(study, metric).empty() && !result.factorial)
      out.push_back({csv_name("difference", arm), difference_csv(result, c, study.experiment.budget.kind)});
    if (!c.targets.empty()) out.push_back({csv_name("time_to_target", arm), target_csv(result, c)});
    if (c.sequential && !c.sequential->course.looks.empty())
      out.push_back({csv_name("looks", arm), looks_csv(c)});
  }
  return out;
}

}  // namespace tenon::ab
