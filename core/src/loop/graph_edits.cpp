// Edits are applied in the order layer, override, insert; each must find what it names.
#include "loop/graph_edits.hpp"

#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::train {
namespace {

[[noreturn]] void fail_at(const Value& value, const std::string& message) {
  fail_config(value.origin.text() + ": " + message);
}

OptionValue to_option(const Value& value) {
  switch (value.type()) {
    case Value::Type::kBoolean:
      return value.boolean();
    case Value::Type::kInteger:
      return value.integer();
    case Value::Type::kReal:
      return value.real();
    case Value::Type::kText:
      return value.text();
    case Value::Type::kTable:
      fail_at(value, "a layer option cannot be a table");
    case Value::Type::kArray:
      break;
  }
  const Value::Array& list = value.array();
  if (list.empty()) return std::vector<std::int64_t>{};
  if (list[0].is_text()) {
    std::vector<std::string> texts;
    for (const Value& element : list) texts.push_back(element.text());
    return texts;
  }
  const bool integers =
      std::all_of(list.begin(), list.end(), [](const Value& v) { return v.type() == Value::Type::kInteger; });
  if (integers) {
    std::vector<std::int64_t> numbers;
    for (const Value& element : list) numbers.push_back(element.integer());
    return numbers;
  }
  std::vector<double> numbers;
  for (const Value& element : list) numbers.push_back(element.real());
  return numbers;
}

void set_options(NodeSpec& node, const Value& table, std::initializer_list<std::string_view> reserved,
                 NodePlaces& places) {
  places.set_node(node.name, table.origin);
  for (const Member& member : table.table()) {
    if (std::find(reserved.begin(), reserved.end(), member.key) != reserved.end()) continue;
    const auto same = [&](const NamedOption& option) { return option.name == member.key; };
    std::erase_if(node.options, same);
    node.options.push_back({member.key, to_option(member.value)});
    places.set_option(node.name, member.key, member.value.origin);
  }
}

const std::string& text_of(const Value& table, std::string_view key) {
  const Value* value = table.find(key);
  if (value == nullptr) fail_at(table, fmt::format("this table needs the key '{}'", key));
  return value->text();
}

void write_out(GraphSpec& graph, const Value& layers, NodePlaces& places) {
  for (const Value& table : layers.array()) {
    NodeSpec node;
    node.name = text_of(table, "name");
    node.type = text_of(table, "type");
    if (const Value* inputs = table.find("inputs")) {
      for (const Value& input : inputs->array()) node.inputs.push_back(input.text());
    } else if (!graph.nodes.empty()) {
      node.inputs.push_back(graph.nodes.back().name);
    } else {
      fail_at(table, "the first layer needs `inputs`, the data fields that it reads");
    }
    set_options(node, table, {"name", "type", "inputs"}, places);
    graph.nodes.push_back(std::move(node));
  }
}

void override_options(GraphSpec& graph, const Value& overrides, NodePlaces& places) {
  for (const Value& table : overrides.array()) {
    const std::string& pattern = text_of(table, "match");
    int matched = 0;
    for (NodeSpec& node : graph.nodes) {
      if (!matches_pattern(pattern, node.name)) continue;
      ++matched;
      if (const Value* type = table.find("type")) {
        if (type->text() != node.type) node.options.clear();
        node.type = type->text();
      }
      set_options(node, table, {"match", "type"}, places);
    }
    if (matched > 0) continue;
    std::vector<std::string_view> names;
    for (const NodeSpec& node : graph.nodes) names.push_back(node.name);
    fail_at(table,
            fmt::format("no node of the model matches '{}'; nodes are: {}", pattern, fmt::join(names, ", ")));
  }
}

void insert_nodes(GraphSpec& graph, const Value& inserts, NodePlaces& places) {
  for (const Value& table : inserts.array()) {
    const std::string& after = text_of(table, "after");
    const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                    [&](const NodeSpec& node) { return node.name == after; });
    // A data field has no node: a node inserted after it comes first.
    const bool field = found == graph.nodes.end() &&
                       std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const NodeSpec& node) {
                         return std::find(node.inputs.begin(), node.inputs.end(), after) != node.inputs.end();
                       });
    if (found == graph.nodes.end() && !field)
      fail_at(table,
              fmt::format("the model has no node and reads no data field '{}' to insert after", after));
    NodeSpec node;
    node.name = text_of(table, "name");
    node.type = text_of(table, "type");
    node.inputs = {after};
    set_options(node, table, {"after", "name", "type"}, places);
    const auto at = field ? graph.nodes.begin() : found + 1;
    for (auto later = at; later != graph.nodes.end(); ++later) {
      std::replace(later->inputs.begin(), later->inputs.end(), after, node.name);
    }
    graph.nodes.insert(at, std::move(node));
  }
}

}  // namespace

std::string NodePlaces::text(const std::string& node, const std::string& option) const {
  if (!option.empty()) {
    const auto found = options_.find({node, option});
    return found == options_.end() ? "" : found->second.text() + ": ";
  }
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? "" : found->second.text() + ": ";
}

GraphSpec edit_graph(const std::function<GraphSpec()>& blueprint, const Value& edits, NodePlaces* places) {
  NodePlaces unused;
  NodePlaces& written = places == nullptr ? unused : *places;
  GraphSpec graph;
  if (const Value* layers = edits.find("layer")) {
    write_out(graph, *layers, written);
  } else {
    graph = blueprint();
  }
  if (const Value* overrides = edits.find("override")) override_options(graph, *overrides, written);
  if (const Value* inserts = edits.find("insert")) insert_nodes(graph, *inserts, written);
  return graph;
}

}  // namespace tenon::train
