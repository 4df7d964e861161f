// A model's graph as text; see model_graph.hpp.
#include "report/model_graph.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tenon::report {
namespace {

using Row = std::vector<std::string>;

std::string value_text(const ModelGraph::Value& value) {
  return value.shape + " " + value.dtype;
}

std::string outputs_text(const ModelGraph::Node& node) {
  std::string out;
  for (const ModelGraph::Value& value : node.outputs) out += (out.empty() ? "" : ", ") + value_text(value);
  return out;
}

/// DOT's only escapes in a quoted text.
std::string dot_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string source_of(const std::string& input) {
  return input.substr(0, input.find(':'));
}

std::string grouped_digits(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string graph_text(const ModelGraph& graph) {
  std::vector<Row> nodes{{"node", "type", "output", "elements", "reads"}};
  std::vector<Row> parameters{{"parameter", "node", "shape", "dtype", "elements", "role"}};
  std::vector<Row> sites{{"node", "module", "weight", "m", "n", "k", "precision"}};
  for (const ModelGraph::Value& field : graph.fields)
    nodes.push_back({field.name, "(data)", value_text(field), "", ""});
  std::set<std::string> seen;
  for (const ModelGraph::Node& node : graph.nodes) {
    std::int64_t elements = 0;
    for (const ModelGraph::Parameter& parameter : node.parameters) {
      elements += parameter.elements;
      parameters.push_back({parameter.name, node.name, parameter.shape, parameter.dtype,
                            seen.insert(parameter.name).second ? grouped_digits(parameter.elements) : "tied",
                            parameter.role});
    }
    nodes.push_back({node.name, node.type, outputs_text(node), elements > 0 ? grouped_digits(elements) : "",
                     fmt::format("{}", fmt::join(node.inputs, ", "))});
    for (const ModelGraph::Site& site : node.sites) {
      sites.push_back({node.name, site.module, site.weight, std::to_string(site.m), std::to_string(site.n),
                       std::to_string(site.k), site.unquantized ? "unquantized" : graph.precision});
    }
  }
  return fmt::format(
      "model {}: {} nodes, {} elements of parameters and buffers, {} linear sites\n\n{}\n{}{}{}", graph.model,
      graph.nodes.size(), grouped_digits(graph.elements), sites.size() - 1, ab::text_table(nodes, "  "),
      ab::text_table(parameters, "  "), sites.size() > 1 ? "\n" : "",
      sites.size() > 1 ? ab::text_table(sites, "  ") : "");
}

std::string graph_json(const ModelGraph& graph) {
  JsonWriter json;
  const auto value = [&](const ModelGraph::Value& v) {
    json.member("name", v.name);
    json.member("shape", v.shape);
    json.member("dtype", v.dtype);
  };
  json.begin_object();
  json.member("model", graph.model);
  json.member("precision", graph.precision);
  json.member("elements", graph.elements);
  json.objects("fields", graph.fields, value);
  json.objects("nodes", graph.nodes, [&](const ModelGraph::Node& node) {
    json.member("name", node.name);
    json.member("type", node.type);
    json.objects("inputs", node.inputs, [&](const std::string& input) { json.member("name", input); });
    json.objects("outputs", node.outputs, value);
    json.objects("parameters", node.parameters, [&](const ModelGraph::Parameter& parameter) {
      json.member("name", parameter.name);
      json.member("shape", parameter.shape);
      json.member("dtype", parameter.dtype);
      json.member("elements", parameter.elements);
      json.member("role", parameter.role);
      json.member("tied", parameter.tied);
    });
    json.objects("sites", node.sites, [&](const ModelGraph::Site& site) {
      json.member("module", site.module);
      json.member("weight", site.weight);
      json.member("m", site.m);
      json.member("n", site.n);
      json.member("k", site.k);
      json.member("unquantized", site.unquantized);
    });
  });
  json.end_object();
  return json.take();
}

std::string graph_dot(const ModelGraph& graph) {
  std::string out =
      fmt::format("digraph {} {{\n  node [shape=box, fontname=\"sans-serif\"];\n", dot_text(graph.model));
  for (const ModelGraph::Value& field : graph.fields) {
    out += fmt::format("  {} [shape=ellipse, label={}];\n", dot_text(field.name),
                       dot_text(field.name + " " + value_text(field)));
  }
  for (const ModelGraph::Node& node : graph.nodes) {
    out += fmt::format("  {} [label={}];\n", dot_text(node.name),
                       dot_text(fmt::format("{}: {} {}", node.name, node.type, outputs_text(node))));
    for (const std::string& input : node.inputs)
      out += fmt::format("  {} -> {};\n", dot_text(source_of(input)), dot_text(node.name));
  }
  return out + "}\n";
}

}  // namespace tenon::report
