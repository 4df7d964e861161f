// Totals of a model as text; see model_shapes.hpp.
#include "report/model_shapes.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "report/model_graph.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::report {
namespace {

/// Begin and end of the first part of a dotted name that is a number; both npos if none is.
std::pair<std::size_t, std::size_t> number_in(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (end > begin && name.find_first_not_of("0123456789", begin) >= end) return {begin, end};
    begin = end + 1;
  }
  return {std::string_view::npos, std::string_view::npos};
}

/// "1.5 GiB"; whole bytes below 1 KiB.
std::string bytes_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  return fmt::format("{:.4g} {}", amount, kUnits[unit]);
}

void add_members(JsonWriter& json, const ModelShapes::Part& part) {
  json.member("parameters", part.parameters);
  json.member("cache_bytes_per_token", part.cache_bytes);
  json.member("cache_bytes_of_context", part.context_cache_bytes);
  json.member("state_bytes", part.state_bytes);
  json.member("forward_flops_per_token", part.flops);
  json.member("training_flops_per_token", kTrainingOverForward * part.flops);
}

}  // namespace

std::string part_of_node(std::string_view node) {
  const auto [begin, end] = number_in(node);
  if (begin == std::string_view::npos) return std::string(node);
  const std::size_t next = end < node.size() ? std::min(node.find('.', end + 1), node.size()) : end;
  return fmt::format("{}*{}", node.substr(0, begin), node.substr(end, next - end));
}

std::string layer_of_node(std::string_view node) {
  const auto [begin, end] = number_in(node);
  return begin == std::string_view::npos ? "" : std::string(node.substr(0, end));
}

double mean_keys(std::int64_t context, std::int64_t window) {
  const auto time = static_cast<double>(context);
  if (window <= 0 || window >= context) return (time + 1) / 2;
  const auto seen = static_cast<double>(window);
  return (seen * (seen + 1) / 2 + (time - seen) * seen) / time;
}

ModelShapes::Part ModelShapes::total() const {
  Part sum;
  sum.name = "total";
  for (const Part& part : parts) {
    sum.parameters += part.parameters;
    sum.cache_bytes += part.cache_bytes;
    sum.context_cache_bytes += part.context_cache_bytes;
    sum.state_bytes += part.state_bytes;
    sum.flops += part.flops;
  }
  return sum;
}

std::string shapes_text(const ModelShapes& shapes) {
  const ModelShapes::Part total = shapes.total();
  std::vector<std::vector<std::string>> rows{
      {"part", "layers", "parameters", "cache bytes/token", "forward FLOPs/token"}};
  const auto add = [&](const ModelShapes::Part& part) {
    rows.push_back({part.name, part.layers > 0 ? std::to_string(part.layers) : "",
                    grouped_digits(part.parameters), grouped_digits(part.cache_bytes),
                    fmt::format("{:.4g}", part.flops)});
  };
  for (const ModelShapes::Part& part : shapes.parts) add(part);
  add(total);
  return fmt::format(
      "model {}: {} parameters, {} of them trained\n"
      "key-value cache in {}: {} per token, {} for a context of {} tokens\n{}"
      "FLOPs per token of such a context: {:.4g} forward, {:.4g} training\n\n{}",
      shapes.model, grouped_digits(total.parameters), grouped_digits(shapes.trained), shapes.activations,
      bytes_text(total.cache_bytes), bytes_text(total.context_cache_bytes), grouped_digits(shapes.context),
      total.state_bytes == 0
          ? ""
          : fmt::format("state: {}, whatever the context\n", bytes_text(total.state_bytes)),
      total.flops, kTrainingOverForward * total.flops, ab::text_table(rows, "  "));
}

std::string shapes_json(const ModelShapes& shapes) {
  JsonWriter json;
  json.begin_object();
  json.member("model", shapes.model);
  json.member("context", shapes.context);
  json.member("activations", shapes.activations);
  json.member("trained_parameters", shapes.trained);
  add_members(json, shapes.total());
  json.objects("parts", shapes.parts, [&](const ModelShapes::Part& part) {
    json.member("name", part.name);
    json.member("layers", part.layers);
    add_members(json, part);
  });
  json.end_object();
  return json.take();
}

}  // namespace tenon::report
