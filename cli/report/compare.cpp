// Inputs and metrics of compare.hpp.
#include "report/compare.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace tenon::report {
namespace {

constexpr const char* kAreas[] = {"config",  "data",    "plugins", "program",
                                  "kernels", "threads", "seeds",   "machine"};

/// Area of a key of the manifest; "" for what differs between any two runs.
std::string area_of(const std::string& key) {
  const auto in = [&](std::initializer_list<const char*> heads) {
    return std::any_of(heads.begin(), heads.end(), [&](const char* head) { return key.starts_with(head); });
  };
  if (in({"data"})) return key.ends_with("path") ? "" : "data";
  if (in({"program", "libraries", "rng"})) return "program";
  if (in({"kernels"})) return "kernels";
  if (in({"threads", "ranks"})) return "threads";
  if (in({"seeds"})) return "seeds";
  if (in({"cpu", "environment"})) return "machine";
  return "";
}

/// Keys that do not change the training: names and observers.
bool is_no_input(const std::string& key) {
  return key == "run.name" || key.starts_with("observe");
}

using Texts = std::map<std::string, std::pair<std::string, std::string>>;  ///< key -> value, origin

void compare(const std::string& area, const Texts& a, const Texts& b, std::vector<InputDifference>& out) {
  std::set<std::string> keys;
  for (const auto& [key, value] : a) keys.insert(key);
  for (const auto& [key, value] : b) keys.insert(key);
  for (const std::string& key : keys) {
    InputDifference difference{area, key, "", "", "", ""};
    if (const auto found = a.find(key); found != a.end())
      std::tie(difference.a, difference.origin_a) = found->second;
    if (const auto found = b.find(key); found != b.end())
      std::tie(difference.b, difference.origin_b) = found->second;
    if (difference.a != difference.b) out.push_back(std::move(difference));
  }
}

std::map<std::string, Texts> inputs_of(const Run& run) {
  std::map<std::string, Texts> areas;
  for (const ConfigLine& line : run.config) {
    if (!is_no_input(line.key)) areas["config"][line.key] = {line.value, line.origin};
  }
  for (const auto& [key, value] : run.record.manifest) {
    const std::string area = area_of(key);
    if (!area.empty()) areas[area][key] = {manifest_text(run.record, key), ""};
  }
  // A plugin is identified by its content; the path of its file does not matter.
  for (const auto& [key, value] : run.record.plugins_lock) {
    if (key.ends_with(".sha256") || key.ends_with(".version")) areas["plugins"][key] = {value, ""};
  }
  // Observers are not inputs: a plugin that only one run has is named by its [[observe]] table, not here.
  return areas;
}

}  // namespace

Comparison compare_runs(const Run& a, const Run& b) {
  Comparison result;
  auto inputs_a = inputs_of(a), inputs_b = inputs_of(b);
  for (const char* area : kAreas) compare(area, inputs_a[area], inputs_b[area], result.inputs);

  std::set<std::string> names;
  for (const auto& [name, series] : a.record.series) names.insert(name);
  for (const auto& [name, series] : b.record.series) names.insert(name);
  for (const std::string& name : names) {
    MetricComparison metric;
    metric.name = name;
    const auto in_a = a.record.series.find(name), in_b = b.record.series.find(name);
    if (in_a != a.record.series.end()) metric.a = facts_of(in_a->second);
    if (in_b != b.record.series.end()) metric.b = facts_of(in_b->second);
    if (metric.a.lines > 0 && metric.b.lines > 0) {
      std::map<std::int64_t, double> values;
      for (const ab::MetricPoint& point : in_a->second) values[point.step] = point.value;
      for (const ab::MetricPoint& point : in_b->second) {
        const auto other = values.find(point.step);
        if (other == values.end()) continue;
        ++metric.common_steps;
        if (metric.first_difference < 0 && !same_figure(other->second, point.value))
          metric.first_difference = point.step;
      }
    }
    result.metrics.push_back(std::move(metric));
  }
  result.have_hashes = !a.record.weights_hash.empty() && !b.record.weights_hash.empty();
  result.same_weights = result.have_hashes && a.record.weights_hash == b.record.weights_hash;
  result.same_state = result.have_hashes && a.record.state_hash == b.record.state_hash;
  return result;
}

}  // namespace tenon::report
