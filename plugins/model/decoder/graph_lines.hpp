// For tests of the decoder: its graph as lines of text, without layers, and the data that it reads.
#pragma once

#include <tenon/model.hpp>
#include <tenon/testing/components.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace tenon::testing::decoder {

inline DataInfo text_data(std::int64_t time, std::int64_t vocabulary, bool packed = false) {
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {time}}, {"targets", DType::kI32, {time}}};
  if (packed) {
    data.fields.push_back({"documents", DType::kI32, {time}});
    data.fields.push_back({"positions", DType::kI32, {time}});
  }
  data.attributes = {{"vocabulary", vocabulary}};
  return data;
}

inline GraphSpec build(const std::string& options, const DataInfo& data) {
  Bench bench("cpu", "reference", 1);
  return bench.make_component<Model>("decoder", options)->build(data);
}

/// "name type(inputs) option=value ..." of each node.
inline std::vector<std::string> lines_of(const GraphSpec& graph) {
  std::vector<std::string> lines;
  for (const NodeSpec& node : graph.nodes) {
    std::string line = fmt::format("{} {}({})", node.name, node.type, fmt::join(node.inputs, ", "));
    for (const NamedOption& option : node.options) {
      std::visit(
          [&](const auto& value) {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>> ||
                          std::is_same_v<std::decay_t<decltype(value)>, std::string>)
              line += fmt::format(" {}={}", option.name, value);
          },
          option.value);
    }
    lines.push_back(line);
  }
  return lines;
}

/// The line of a node, without its name.
inline std::string line_of(const GraphSpec& graph, const std::string& node) {
  for (const std::string& line : lines_of(graph))
    if (line.starts_with(node + " ")) return line.substr(node.size() + 1);
  return "";
}

}  // namespace tenon::testing::decoder
