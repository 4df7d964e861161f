// A comparison as text for a terminal and as JSON.
#include "report/compare.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tenon::report {
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
