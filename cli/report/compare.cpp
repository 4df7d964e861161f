// Inputs and metrics of two runs; tensors of their checkpoints, one at a time in host memory; and the
// comparison as text for a terminal and as JSON.
#include "report/compare.hpp"

#include "ab/format.hpp"

#include "base/json_writer.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>

namespace tenon::report {
namespace {

constexpr const char* kAreas[] = {"config",  "init",    "data",  "plugins", "program",
                                  "kernels", "threads", "seeds", "machine"};

/// Area of a key of the manifest; "" for what differs between any two runs.
std::string area_of(const std::string& key) {
  const auto in = [&](std::initializer_list<const char*> heads) {
    return std::any_of(heads.begin(), heads.end(), [&](const char* head) { return key.starts_with(head); });
  };
  if (in({"data"})) return key.ends_with("path") ? "" : "data";
  if (in({"init.digest"})) return "init";
  if (in({"program", "libraries", "rng"})) return "program";
  if (in({"kernels"})) return "kernels";
  if (in({"threads", "ranks"})) return "threads";
  if (in({"seeds"})) return "seeds";
  if (in({"cpu", "environment"})) return "machine";
  return "";
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
    if (may_change_training(line.key)) areas["config"][line.key] = {line.value, line.origin};
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

namespace {

/// The newest generation that can be opened. Nothing is repaired: a reader must not change a run.
CheckpointReader newest(FileSystem& files, const std::string& attempt) {
  const std::string folder = attempt + "/checkpoints";
  std::vector<std::int64_t> steps;
  const CheckpointStore store(files, folder, {});
  if (files.exists(folder)) steps = store.generations();
  std::string reasons;
  for (std::size_t i = steps.size(); i-- > 0;) {
    try {
      return store.open(steps[i]);
    } catch (const Error& error) {
      reasons += std::string("; ") + error.what();
    }
  }
  fail_run(folder + ": no checkpoint to compare" + reasons +
           "; choose a [recovery] that saves, e.g. type = \"full\"");
}

TensorView read(CheckpointReader& reader, const TensorSpec& spec, std::vector<std::byte>& memory) {
  TensorView view;
  view.dtype = spec.dtype;
  view.shape = spec.shape;
  memory.resize(std::max<std::int64_t>(1, view.bytes()));
  view.data = memory.data();
  reader.read(spec.name, view);
  return view;
}

}  // namespace

TensorComparison compare_tensors(const std::string& name, const TensorView& a, const TensorView& b) {
  TensorComparison result;
  result.name = name;
  result.dtype = dtype_name(a.dtype);
  result.shape = a.shape.text();
  result.elements = a.elements();
  result.equal_bits = a.bytes() == 0 || std::memcmp(a.data, b.data, a.bytes()) == 0;
  if (result.equal_bits || !has_real_values(a.dtype)) return result;
  std::vector<double> values;
  values.reserve(a.elements());
  for_each_real(a, [&](double value) { values.push_back(value); });
  std::size_t i = 0;
  for_each_real(b, [&](double y) {
    const double x = values[i++];
    if (x == y || (std::isnan(x) && std::isnan(y))) return;
    ++result.differing;
    if (!std::isfinite(x) || !std::isfinite(y)) return;
    const double difference = std::abs(x - y);
    result.largest_difference = std::max(result.largest_difference, difference);
    result.largest_relative =
        std::max(result.largest_relative, difference / std::max(std::abs(x), std::abs(y)));
  });
  return result;
}

NumericComparison compare_checkpoints(const std::string& attempt_a, const std::string& attempt_b) {
  const auto files = make_posix_files();
  CheckpointReader a = newest(*files, attempt_a), b = newest(*files, attempt_b);
  NumericComparison result;
  result.step_a = a.step();
  result.step_b = b.step();
  std::set<std::string> names;
  for (const TensorSpec& spec : a.tensors()) names.insert(spec.name);
  for (const TensorSpec& spec : b.tensors()) names.insert(spec.name);
  std::vector<std::byte> memory_a, memory_b;
  for (const std::string& name : names) {
    const TensorSpec *in_a = a.find(name), *in_b = b.find(name);
    if (in_a != nullptr && in_b != nullptr && in_a->dtype == in_b->dtype && in_a->shape == in_b->shape) {
      const TensorView view_a = read(a, *in_a, memory_a), view_b = read(b, *in_b, memory_b);
      result.tensors.push_back(compare_tensors(name, view_a, view_b));
      continue;
    }
    TensorComparison tensor;
    tensor.name = name;
    tensor.equal_bits = false;
    const auto text = [](const TensorSpec& spec) {
      return fmt::format("{} {}", dtype_name(spec.dtype), spec.shape.text());
    };
    tensor.problem = in_a == nullptr   ? "only in B"
                     : in_b == nullptr ? "only in A"
                                       : fmt::format("A has {}, B has {}", text(*in_a), text(*in_b));
    result.tensors.push_back(std::move(tensor));
  }
  return result;
}

namespace {

constexpr std::size_t kMostInputs = 40, kMostTensors = 10;

std::string with_origin(const std::string& value, const std::string& origin) {
  if (value.empty()) return "(absent)";
  return origin.empty() ? value : value + "  (" + origin + ")";
}

std::string input_line(const InputDifference& d) {
  return fmt::format("  {:<8} {}\n             A: {}\n             B: {}\n", d.area, d.key,
                     with_origin(d.a, d.origin_a), with_origin(d.b, d.origin_b));
}

/// The best value of a metric that has a better side, else nothing.
std::string best(const std::string& name, const MetricFacts& facts) {
  const bool high = higher_is_better(name);
  if (facts.lines == 0 || !(high || name.ends_with("/loss") || name.ends_with("/relative_l2"))) return "-";
  return ab::compact(high ? facts.most : facts.least);
}

std::optional<TensorComparison> first_differing(const NumericComparison& numerics) {
  for (const TensorComparison& tensor : numerics.tensors) {
    if (!tensor.equal_bits) return tensor;
  }
  return std::nullopt;
}

std::string tensor_line(const TensorComparison& t) {
  if (!t.problem.empty()) return fmt::format("  {}: {}\n", t.name, t.problem);
  if (t.equal_bits) return fmt::format("  {}: equal bits\n", t.name);
  return fmt::format("  {} ({} {}): {} of {} differ, largest difference {:.6g}, largest relative {:.6g}\n",
                     t.name, t.dtype, t.shape, t.differing, t.elements, t.largest_difference,
                     t.largest_relative);
}

std::string numerics_text(const NumericComparison& numerics) {
  std::string out =
      fmt::format("checkpoints: step {} of A, step {} of B\n", numerics.step_a, numerics.step_b);
  const auto first = first_differing(numerics);
  if (!first) return out + fmt::format("  all {} tensors have equal bits\n", numerics.tensors.size());
  std::vector<const TensorComparison*> order;
  for (const TensorComparison& tensor : numerics.tensors) {
    if (!tensor.equal_bits) order.push_back(&tensor);
  }
  out += fmt::format("  {} of {} tensors differ; first by name:\n", order.size(), numerics.tensors.size());
  out += "  " + tensor_line(*first);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    if (a->problem.empty() != b->problem.empty()) return !a->problem.empty();
    return a->largest_difference > b->largest_difference;
  });
  out += "  by largest difference:\n";
  for (std::size_t i = 0; i < std::min(order.size(), kMostTensors); ++i) out += "  " + tensor_line(*order[i]);
  return out;
}

void facts_members(JsonWriter& json, const char* key, const MetricFacts& facts) {
  json.begin_object(key);
  json.member("lines", facts.lines);
  json.member("last", facts.last);
  json.member("least", facts.least);
  json.member("most", facts.most);
  json.end_object();
}

void checkpoint_members(JsonWriter& json, const NumericComparison& numerics) {
  json.begin_object("numerics");
  json.member("step_a", numerics.step_a);
  json.member("step_b", numerics.step_b);
  const auto first = first_differing(numerics);
  json.member("first_differing", first ? first->name : "");
  json.objects("tensors", numerics.tensors, [&](const TensorComparison& t) {
    json.member("name", t.name);
    json.member("problem", t.problem);
    json.member("equal_bits", t.equal_bits);
    json.member("differing", t.differing);
    json.member("elements", t.elements);
    json.member("largest_difference", t.largest_difference);
    json.member("largest_relative", t.largest_relative);
  });
  json.end_object();
}

void line_members(JsonWriter& json, const char* key, const NumericsLine& line) {
  json.begin_object(key);
  json.member("format", line.format);
  json.member("reason", line.reason);
  json.member("dtype", line.dtype);
  json.member("hash", line.hash);
  json.member("amax", line.amax);
  json.member("mean_relative_error", line.mean_relative_error);
  json.member("underflow", line.underflow);
  json.member("saturated", line.saturated);
  json.member("sqnr_db", line.sqnr_db);
  json.end_object();
}

void pair_members(JsonWriter& json, const OperandComparison::Pair& pair) {
  json.member("step", pair.a.step);
  json.member("operand", pair.a.name());
  json.member("same_bits", pair.same_bits());
  line_members(json, "a", pair.a);
  line_members(json, "b", pair.b);
}

void operand_members(JsonWriter& json, const OperandComparison& operands) {
  json.begin_object("operands");
  json.member("in_a", operands.in_a);
  json.member("in_b", operands.in_b);
  json.member("common", operands.common);
  json.member("equal", operands.equal);
  for (const auto& [key, pair] :
       {std::pair{"first", &operands.first}, {"first_other_bits", &operands.first_bits}}) {
    if (!*pair) continue;
    json.begin_object(key);
    pair_members(json, **pair);
    json.end_object();
  }
  json.objects("largest", operands.largest,
               [&](const OperandComparison::Pair& pair) { pair_members(json, pair); });
  json.end_object();
}

}  // namespace

std::string comparison_text(const Run& a, const Run& b, const Comparison& comparison,
                            const NumericsAnswer* numerics) {
  std::string out = fmt::format("A: {}\nB: {}\n", a.record.folder, b.record.folder);
  if (comparison.inputs.empty()) {
    out += "inputs: equal in configuration, data, plugins, program, kernels, threads, seeds and machine\n";
  } else {
    out += "first differing input:\n" + input_line(comparison.inputs.front());
    if (comparison.inputs.size() > 1) {
      out += "further differing inputs:\n";
      const std::size_t shown = std::min(comparison.inputs.size(), kMostInputs);
      for (std::size_t i = 1; i < shown; ++i) out += input_line(comparison.inputs[i]);
      if (shown < comparison.inputs.size())
        out += fmt::format("  and {} more (see --json)\n", comparison.inputs.size() - shown);
    }
  }
  std::size_t width = 6;
  for (const MetricComparison& m : comparison.metrics) width = std::max(width, m.name.size());
  const auto row = [&](const std::string& name, const std::string& last_a, const std::string& last_b,
                       const std::string& best_a, const std::string& best_b, const std::string& where) {
    out += fmt::format("{:<{}} {:>12} {:>12} {:>12} {:>12}  {}\n", name, width, last_a, last_b, best_a,
                       best_b, where);
  };
  out += "\n";
  row("metric", "last A", "last B", "best A", "best B", "first differs at");
  for (const MetricComparison& m : comparison.metrics) {
    const auto last = [](const MetricFacts& facts) {
      return facts.lines > 0 ? ab::compact(facts.last) : "-";
    };
    const std::string where = m.common_steps == 0      ? "no common step"
                              : m.first_difference < 0 ? "never"
                                                       : fmt::format("step {}", m.first_difference);
    row(m.name, last(m.a), last(m.b), best(m.name, m.a), best(m.name, m.b), where);
  }
  out += "\n";
  if (!comparison.have_hashes) {
    out += "hashes: a run has not ended, so there are none to compare\n";
  } else {
    out += fmt::format("weights: {}\nstate: {}\n", comparison.same_weights ? "equal bits" : "differ",
                       comparison.same_state ? "equal bits" : "differ");
  }
  if (numerics == nullptr) return out;
  out += operands_text(numerics->operands);
  out += numerics->checkpoints ? numerics_text(*numerics->checkpoints)
                               : "checkpoints: " + numerics->no_checkpoints + "\n";
  return out;
}

std::string comparison_json(const Run& a, const Run& b, const Comparison& comparison,
                            const NumericsAnswer* numerics) {
  JsonWriter json;
  json.begin_object();
  json.member("a", a.record.folder);
  json.member("b", b.record.folder);
  json.objects("inputs", comparison.inputs, [&](const InputDifference& d) {
    json.member("area", d.area);
    json.member("key", d.key);
    json.member("a", d.a);
    json.member("b", d.b);
    json.member("origin_a", d.origin_a);
    json.member("origin_b", d.origin_b);
  });
  json.objects("metrics", comparison.metrics, [&](const MetricComparison& m) {
    json.member("name", m.name);
    facts_members(json, "a", m.a);
    facts_members(json, "b", m.b);
    json.member("common_steps", m.common_steps);
    json.member("first_difference", m.first_difference);
  });
  json.member("have_hashes", comparison.have_hashes);
  json.member("same_weights", comparison.same_weights);
  json.member("same_state", comparison.same_state);
  if (numerics != nullptr) {
    if (numerics->checkpoints) checkpoint_members(json, *numerics->checkpoints);
    operand_members(json, numerics->operands);
  }
  json.end_object();
  return json.take();
}

}  // namespace tenon::report
