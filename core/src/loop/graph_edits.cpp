// Edits are applied in the order layer, override, remove, insert; each must find what it names, and what an
// edited node reads must exist before it.
#include "loop/graph_edits.hpp"

#include "config/words.hpp"

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
      return value.inline_toml();  // an inner component: the layer's schema says so when it is made
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

/// "; did you mean 'fc2'?", or all of them.
std::string near_or_all(std::string_view word, const std::vector<std::string>& names, const char* what) {
  const std::string near = config::suggestion(word, names);
  return near.empty() ? fmt::format("; {} are: {}", what, fmt::join(names, ", ")) : near;
}

[[noreturn]] void fail_no_match(const Value& table, const std::string& pattern, const GraphSpec& graph) {
  std::vector<std::string> names;
  for (const NodeSpec& node : graph.nodes) names.push_back(node.name);
  fail_at(table,
          fmt::format("no node of the model matches '{}'{}", pattern, near_or_all(pattern, names, "nodes")));
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
    if (matched == 0) fail_no_match(table, pattern, graph);
  }
}

/// The node before ":1" of an input that names an output.
std::string_view node_of(std::string_view input) {
  return input.substr(0, input.find(':'));
}

[[noreturn]] void fail_hole(const Value& table, const NodeSpec& removed, const std::string& reader,
                            const std::string& input) {
  if (input != removed.name) {
    fail_at(table, fmt::format("'{}' cannot be removed: '{}' reads its output '{}', and only readers of the "
                               "first output can read its first input instead",
                               removed.name, reader, input));
  }
  fail_at(table,
          fmt::format("'{}' cannot be removed: '{}' reads it, and it has no input that '{}' could read "
                      "instead",
                      removed.name, reader, reader));
}

void remove_nodes(GraphSpec& graph, const Value& removals) {
  for (const Value& table : removals.array()) {
    const std::string& pattern = text_of(table, "match");
    // Readers follow what they read, so the first input of a removed node is final when a reader takes it.
    std::map<std::string, NodeSpec, std::less<>> removed;
    NodeList kept;
    for (NodeSpec& node : graph.nodes) {
      const bool goes = matches_pattern(pattern, node.name);
      if (goes && node.inputs.size() > 1) node.inputs.resize(1);
      bool hole = false;
      for (std::string& input : node.inputs) {
        const auto found = removed.find(node_of(input));
        if (found == removed.end()) continue;
        const NodeSpec& gone = found->second;
        hole = input != gone.name || gone.inputs.empty();
        if (hole && !goes) fail_hole(table, gone, node.name, input);
        if (!hole) input = gone.inputs[0];
      }
      if (hole) node.inputs.clear();
      if (goes)
        removed.emplace(std::string(node.name), std::move(node));
      else
        kept.push_back(std::move(node));
    }
    if (kept.empty())
      fail_at(table, fmt::format("'{}' matches every node; the model would have none", pattern));
    graph.nodes = std::move(kept);
    if (removed.empty()) fail_no_match(table, pattern, graph);
  }
}

/// `text` with each {} replaced by the name of the node that the insertion is for.
std::string for_node(std::string text, const std::string& node) {
  for (std::size_t at = 0; (at = text.find("{}", at)) != std::string::npos; at += node.size())
    text.replace(at, 2, node);
  return text;
}

/// Names of the nodes that [[model.insert]] is for; or of the data field, which only `after` may name.
std::vector<std::string> places_of(const GraphSpec& graph, const Value& table, bool before) {
  const std::string& pattern = text_of(table, before ? "before" : "after");
  std::vector<std::string> matched;
  for (const NodeSpec& node : graph.nodes) {
    if (matches_pattern(pattern, node.name)) matched.push_back(node.name);
  }
  const auto reads = [&](const NodeSpec& node) {
    return std::find(node.inputs.begin(), node.inputs.end(), pattern) != node.inputs.end();
  };
  if (matched.empty() && !before && std::any_of(graph.nodes.begin(), graph.nodes.end(), reads))
    return {pattern};
  if (matched.empty()) fail_no_match(table, pattern, graph);
  if (matched.size() > 1 && text_of(table, "name").find("{}") == std::string::npos) {
    fail_at(
        *table.find("name"),
        fmt::format("'{}' matches {} nodes, so the name of the inserted ones needs {{}}, which stands for "
                    "the name of each: e.g. name = \"{{}}.{}\"",
                    pattern, matched.size(), text_of(table, "name")));
  }
  return matched;
}

void insert_node(GraphSpec& graph, const Value& table, const std::string& place, bool before,
                 NodePlaces& places) {
  const auto named = [](const std::string& name) {
    return [&name](const NodeSpec& node) { return node.name == name; };
  };
  NodeSpec node;
  node.name = for_node(text_of(table, "name"), place);
  node.type = text_of(table, "type");
  if (std::any_of(graph.nodes.begin(), graph.nodes.end(), named(node.name)))
    fail_at(*table.find("name"),
            fmt::format("the model has a node '{}' already; choose another name", node.name));
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(), named(place));
  if (before && found->inputs.empty())
    fail_at(table, fmt::format("'{}' reads nothing, so no node can be inserted before it", place));
  if (const Value* inputs = table.find("inputs")) {
    for (const Value& input : inputs->array()) node.inputs.push_back(for_node(input.text(), place));
  } else {
    node.inputs = {before ? found->inputs[0] : place};
  }
  set_options(node, table, {"after", "before", "inputs", "name", "type"}, places);
  // A data field has no node: a node inserted after it comes first.
  auto at = found == graph.nodes.end() ? graph.nodes.begin() : before ? found : found + 1;
  if (before) {
    found->inputs[0] = node.name;
  } else {
    for (auto later = at; later != graph.nodes.end(); ++later)
      std::replace(later->inputs.begin(), later->inputs.end(), place, node.name);
  }
  graph.nodes.insert(at, std::move(node));
}

void insert_nodes(GraphSpec& graph, const Value& inserts, NodePlaces& places) {
  for (const Value& table : inserts.array()) {
    const bool before = table.find("before") != nullptr;
    if (before == (table.find("after") != nullptr)) {
      fail_at(table, before
                         ? "[[model.insert]] has both `after` and `before`; keep one"
                         : "[[model.insert]] needs `after` or `before`: a node, a pattern of nodes, or, with "
                           "`after`, a data field");
    }
    for (const std::string& place : places_of(graph, table, before))
      insert_node(graph, table, place, before, places);
  }
}

/// What edited nodes read must be a data field or an earlier node: said here, where lines are known.
void require_inputs(const GraphSpec& graph, const DataInfo& data, const NodePlaces& places) {
  std::vector<std::string> known;
  for (const DataField& field : data.fields) known.push_back(field.name);
  for (const NodeSpec& node : graph.nodes) {
    const std::string place = places.text(node.name, "");
    for (const std::string& input : node.inputs) {
      const std::string_view source = node_of(input);
      if (place.empty() || std::find(known.begin(), known.end(), source) != known.end()) continue;
      const auto same = [&](const NodeSpec& other) { return other.name == source; };
      const bool later = std::any_of(graph.nodes.begin(), graph.nodes.end(), same);
      fail_config(fmt::format("{}node '{}' reads '{}', {}{}", place, node.name, input,
                              later ? "which does not come before it" : "which is no node and no data field",
                              near_or_all(source, known, "known before it")));
    }
    known.push_back(node.name);
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

GraphSpec edit_graph(const std::function<GraphSpec()>& blueprint, const DataInfo& data, const Value& edits,
                     NodePlaces* places) {
  NodePlaces unused;
  NodePlaces& written = places == nullptr ? unused : *places;
  GraphSpec graph;
  if (const Value* layers = edits.find("layer")) {
    write_out(graph, *layers, written);
  } else {
    graph = blueprint();
  }
  if (const Value* overrides = edits.find("override")) override_options(graph, *overrides, written);
  if (const Value* removals = edits.find("remove")) remove_nodes(graph, *removals);
  if (const Value* inserts = edits.find("insert")) insert_nodes(graph, *inserts, written);
  require_inputs(graph, data, written);
  return graph;
}

}  // namespace tenon::train
