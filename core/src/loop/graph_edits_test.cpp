// Edits of a graph of five nodes: what is inserted and removed, who reads what afterwards, and what is
// refused.
#include "loop/graph_edits.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::train {
namespace {

/// x -> fc1 -> act1 -> fc2 -> act2 -> sum(act2, act1); "name(inputs)" in order.
GraphSpec blueprint() {
  return {NodeList(std::vector<NodeSpec>{{"fc1", "linear", {"x"}, {}},
                                         {"act1", "gelu", {"fc1"}, {}},
                                         {"fc2", "linear", {"act1"}, {}},
                                         {"act2", "gelu", {"fc2"}, {}},
                                         {"sum", "add", {"act2", "act1"}, {}}})};
}

std::string edited(const std::string& toml) {
  DataInfo data;
  data.fields = {{"x", DType::kF32, Shape{4}}, {"mask", DType::kF32, Shape{4}}};
  const Config config = Config::parse(toml, "run.toml", {});
  const GraphSpec graph = edit_graph(blueprint, data, *config.root().find("model"));
  std::string text;
  for (const NodeSpec& node : graph.nodes) {
    text += (text.empty() ? "" : " ") + node.name + "(";
    for (std::size_t i = 0; i < node.inputs.size(); ++i) text += (i > 0 ? "," : "") + node.inputs[i];
    text += ")";
  }
  return text;
}

std::string refusal(const std::string& toml) {
  try {
    return "accepted: " + edited(toml);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
}

TEST(GraphEdits, InsertAndRemove) {
  const struct {
    const char* what;
    const char* toml;
    const char* graph;
  } cases[] = {
      {"after a node, all of its readers are redirected",
       "[[model.insert]]\nafter = \"act1\"\nname = \"drop\"\ntype = \"dropout\"",
       "fc1(x) act1(fc1) drop(act1) fc2(drop) act2(fc2) sum(act2,drop)"},
      {"after a pattern, one node for each match",
       "[[model.insert]]\nafter = \"act*\"\nname = \"{}.drop\"\ntype = \"dropout\"",
       "fc1(x) act1(fc1) act1.drop(act1) fc2(act1.drop) act2(fc2) act2.drop(act2) sum(act2.drop,act1.drop)"},
      {"after a data field", "[[model.insert]]\nafter = \"x\"\nname = \"spread\"\ntype = \"repartition\"",
       "spread(x) fc1(spread) act1(fc1) fc2(act1) act2(fc2) sum(act2,act1)"},
      {"inputs of its own",
       "[[model.insert]]\nafter = \"act2\"\nname = \"gate\"\ntype = \"mul\"\ninputs = [\"{}\", \"mask\"]",
       "fc1(x) act1(fc1) fc2(act1) act2(fc2) gate(act2,mask) sum(gate,act1)"},
      {"before a node only that node is redirected",
       "[[model.insert]]\nbefore = \"fc2\"\nname = \"norm\"\ntype = \"layer_norm\"",
       "fc1(x) act1(fc1) norm(act1) fc2(norm) act2(fc2) sum(act2,act1)"},
      {"before a pattern", "[[model.insert]]\nbefore = \"fc?\"\nname = \"{}.norm\"\ntype = \"layer_norm\"",
       "fc1.norm(x) fc1(fc1.norm) act1(fc1) fc2.norm(act1) fc2(fc2.norm) act2(fc2) sum(act2,act1)"},
      {"readers of a removed node read its first input", "[[model.remove]]\nmatch = \"act*\"",
       "fc1(x) fc2(fc1) sum(fc2,fc1)"},
      {"also through several removed nodes",
       "[[model.remove]]\nmatch = \"fc*\"\n[[model.remove]]\nmatch = \"act1\"", "act2(x) sum(act2,x)"},
      {"a removed name is free for an inserted node",
       "[[model.remove]]\nmatch = \"act2\"\n[[model.insert]]\nafter = \"fc2\"\nname = \"act2\"\ntype = "
       "\"relu\"",
       "fc1(x) act1(fc1) fc2(act1) act2(fc2) sum(act2,act1)"},
  };
  for (const auto& test : cases) EXPECT_EQ(edited(test.toml), test.graph) << test.what;
}

TEST(GraphEdits, ATableIsCarriedAsItsText) {
  DataInfo data;
  data.fields = {{"x", DType::kF32, Shape{4}}};
  const Config config = Config::parse(
      "[[model.insert]]\nbefore = \"fc1\"\nname = \"t\"\ntype = \"frozen\"\n"
      "precision = {type = \"fp8\", site = {\"h.*\" = {fprop_x = \"e4m3\"}}}\n",
      "run.toml", {});
  const GraphSpec graph = edit_graph(blueprint, data, *config.root().find("model"));
  const NamedOption& option = graph.nodes.at(0).options.at(0);
  EXPECT_EQ(option.name, "precision");
  const Value& written = *config.root().find("model")->find("insert")->array().at(0).find("precision");
  EXPECT_EQ(parse_value(std::get<std::string>(option.value), {}), written);
}

TEST(GraphEdits, RefusalsNameTheLineAndWhatIsNear) {
  const struct {
    const char* toml;
    const char* message;
  } cases[] = {
      {"[[model.override]]\nmatch = \"fc3\"",
       "run.toml:1:1: no node of the model matches 'fc3'; did you mean 'fc1'?"},
      {"[[model.remove]]\nmatch = \"conv.*\"",
       "run.toml:1:1: no node of the model matches 'conv.*'; nodes are: fc1, act1, fc2, act2, sum"},
      {"[[model.remove]]\nmatch = \"*\"", "run.toml:1:1: '*' matches every node; the model would have none"},
      {"[[model.layer]]\nname = \"noise\"\ntype = \"draw\"\ninputs = []\n[[model.layer]]\nname = "
       "\"out\"\ntype = "
       "\"linear\"\n[[model.remove]]\nmatch = \"noise\"",
       "run.toml:8:1: 'noise' cannot be removed: 'out' reads it, and it has no input that 'out' could read "
       "instead"},
      {"[[model.layer]]\nname = \"split\"\ntype = \"split\"\ninputs = [\"x\"]\n[[model.layer]]\nname = "
       "\"out\"\n"
       "type = \"linear\"\ninputs = [\"split:1\"]\n[[model.remove]]\nmatch = \"split\"",
       "run.toml:9:1: 'split' cannot be removed: 'out' reads its output 'split:1', and only readers of the "
       "first "
       "output can read its first input instead"},
      {"[[model.insert]]\nafter = \"act*\"\nname = \"drop\"\ntype = \"dropout\"",
       "run.toml:3:8: 'act*' matches 2 nodes, so the name of the inserted ones needs {}, which stands for "
       "the "
       "name of each: e.g. name = \"{}.drop\""},
      {"[[model.insert]]\nafter = \"act3\"\nname = \"drop\"\ntype = \"dropout\"",
       "run.toml:1:1: no node of the model matches 'act3'; did you mean 'act1'?"},
      {"[[model.insert]]\nbefore = \"x\"\nname = \"drop\"\ntype = \"dropout\"",
       "run.toml:1:1: no node of the model matches 'x'; nodes are: fc1, act1, fc2, act2, sum"},
      {"[[model.insert]]\nafter = \"fc1\"\nbefore = \"fc2\"\nname = \"drop\"\ntype = \"dropout\"",
       "run.toml:1:1: [[model.insert]] has both `after` and `before`; keep one"},
      {"[[model.insert]]\nname = \"drop\"\ntype = \"dropout\"",
       "run.toml:1:1: [[model.insert]] needs `after` or `before`: a node, a pattern of nodes, or, with "
       "`after`, a "
       "data field"},
      {"[[model.insert]]\nafter = \"fc1\"\nname = \"act1\"\ntype = \"relu\"",
       "run.toml:3:8: the model has a node 'act1' already; choose another name"},
      {"[[model.insert]]\nafter = \"fc1\"\nname = \"gate\"\ntype = \"mul\"\ninputs = [\"fc1\", \"act2\"]",
       "run.toml:1:1: node 'gate' reads 'act2', which does not come before it; known before it are: x, mask, "
       "fc1"},
      {"[[model.insert]]\nafter = \"fc1\"\nname = \"gate\"\ntype = \"mul\"\ninputs = [\"fc1\", \"maks\"]",
       "run.toml:1:1: node 'gate' reads 'maks', which is no node and no data field; did you mean 'mask'?"},
  };
  for (const auto& test : cases) EXPECT_EQ(refusal(test.toml), test.message);
}

}  // namespace
}  // namespace tenon::train
