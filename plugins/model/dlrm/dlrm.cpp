// Model `dlrm`: its chain of nodes, and initial values as the authors draw them.
#include "dlrm.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/ops/interaction.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace tenon::dlrm {
namespace {

/// Linear layers `part`.0, `part`.1, ..., each followed by a ReLU; the last one only where `last_relu`.
/// Weights have the variance 2 / (inputs + outputs), biases 1 / outputs. Returns the name of the result.
std::string perceptron(GraphSpec& graph, const char* part, std::string value, std::int64_t columns,
                       std::span<const std::int64_t> widths, bool last_relu) {
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const auto in = static_cast<double>(columns), out = static_cast<double>(widths[i]);
    const std::string name = fmt::format("{}.{}", part, i);
    graph.nodes.push_back({name,
                           "linear",
                           {value},
                           {{"features", widths[i]},
                            {"init_scale", std::sqrt(2 / (in + out))},
                            {"bias_init_scale", std::sqrt(1 / out)}}});
    value = name;
    columns = widths[i];
    if (i + 1 == widths.size() && !last_relu) break;
    value = name + ".act";
    graph.nodes.push_back({value, "relu", {name}, {}});
  }
  return value;
}

}  // namespace

GraphSpec Dlrm::build(const DataInfo& data) {
  const auto bottom = options_.integers("bottom"), top = options_.integers("top");
  if (bottom.empty())
    fail_config("model dlrm: option 'bottom' needs at least one width, the last being that of the tables");
  if (top.empty() || top.back() != 1)
    fail_config(
        fmt::format("model dlrm: option 'top' must end in 1, the logit, found [{}]", fmt::join(top, ", ")));
  const ClickData clicks = click_data(options_, data, "dlrm");
  const std::int64_t width = bottom.back();
  const bool dot = options_.text("interaction") == "dot", itself = options_.boolean("itself");
  if (itself && !dot)
    fail_config("model dlrm: option 'itself' belongs to interaction = \"dot\", found interaction = \"cat\"");

  GraphSpec graph;
  const std::string z0 = perceptron(graph, "bottom", "dense", clicks.dense, bottom, true);
  graph.nodes.push_back(tables_node(options_, clicks, width));
  NodeSpec join{"interaction", dot ? "dot_interaction" : "cat_interaction", {z0, "emb"}, {}};
  if (itself) join.options.push_back({"itself", true});
  graph.nodes.push_back(std::move(join));
  const Interaction kind = !dot     ? Interaction::kConcatenate
                           : itself ? Interaction::kDotItself
                                    : Interaction::kDot;
  const std::int64_t columns = interaction_columns(kind, width, clicks.tables(), width);
  finish(graph, perceptron(graph, "top", "interaction", columns, top, false), clicks);
  return graph;
}

}  // namespace tenon::dlrm
