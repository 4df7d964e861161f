// Property N9: layers of heads whose heads, and groups of heads, are shards over axes of a mesh, against one
// rank: outputs, weights and all gradients of `mamba2`, with B and C on one rank or shared by several, and
// of `attention`; and what is refused, equally on all ranks (P14).
#include "graphs.hpp"

#include <tenon/testing/mesh_ranks.hpp>

namespace model_parallel::heads_test {
namespace {

using tenon::testing::MeshRanks;
using Nodes = std::vector<NodeSpec>;

struct HeadCase {
  const char* title;
  std::vector<int> mesh;
  std::int64_t heads, groups;
  Numbers axes;
  Numbers samples = {};  ///< axes that shard the samples
  bool documents = false;

  ShardSpec sharding() const { return {.dims = Numbers(samples.size(), 0), .axes = samples, .sizes = {}}; }
};

std::ostream& operator<<(std::ostream& out, const HeadCase& c) {
  return out << c.title;
}

TestField documents_of(std::int64_t batch, std::int64_t time) {
  TestField field{"documents", Shape{batch, time}, tenon::DType::kI32, {}};
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < time; ++t) field.values.push_back(static_cast<double>((t + 2 * b) / 4));
  return field;
}

constexpr std::int64_t kBatch = 3, kTime = 7;

std::vector<TestField> fields_of(const HeadCase& c, std::int64_t width) {
  std::vector<TestField> fields = {real_field("x", Shape{kBatch, kTime, width})};
  if (c.documents) fields.push_back(documents_of(kBatch, kTime));
  return fields;
}

/// The repartitions of the inputs, or nothing on one rank. Returns the names of the inputs.
std::vector<std::string> add_inputs(const HeadCase& c, bool spread, Nodes& nodes) {
  std::vector<std::string> names = {"x"};
  if (c.documents) names.push_back("documents");
  if (!spread) return names;
  for (std::string& name : names) {
    nodes.push_back(c.sharding().node("spread_" + name, name));
    name = "spread_" + name;
  }
  return names;
}

Nodes mamba_nodes(const HeadCase& c, bool spread) {
  Nodes nodes;
  NodeSpec layer{"c",
                 "mamba2",
                 add_inputs(c, spread, nodes),
                 {{"heads", c.heads},
                  {"groups", c.groups},
                  {"head_width", std::int64_t{3}},
                  {"state", std::int64_t{5}},
                  {"chunk", std::int64_t{3}},
                  {"dt_min", 0.2},
                  {"dt_max", 1.5},
                  {"init_scale", 0.5}}};
  if (spread) layer.options.push_back({"axes", c.axes});
  nodes.push_back(layer);
  nodes.push_back(ShardSpec().node("y", "c"));
  return nodes;
}

/// q, k and v by linear layers whose columns are shards, and a projection back that sums.
Nodes attention_nodes(const HeadCase& c, bool spread) {
  Nodes nodes;
  const std::vector<std::string> inputs = add_inputs(c, spread, nodes);
  const std::int64_t head_width = 4;
  const auto linear = [&](const char* name, const std::string& input, std::int64_t features) {
    NodeSpec node{name, "linear", {input}, {{"features", features}, {"init_scale", 0.4}}};
    if (spread && input != "c") node.options.push_back({"axes", c.axes});
    nodes.push_back(node);
  };
  const auto turned = [&](const char* name, const char* input, std::int64_t heads) {
    nodes.push_back({name, "rotary", {input}, {{"heads", heads}}});
  };
  linear("q", inputs[0], c.heads * head_width);
  linear("k", inputs[0], c.groups * head_width);
  linear("v", inputs[0], c.groups * head_width);
  turned("tq", "q", c.heads);
  turned("tk", "k", c.groups);
  nodes.push_back({"c", "attention", {"tq", "tk", "v"}, {{"heads", c.heads}, {"kv_heads", c.groups}}});
  if (c.documents) nodes.back().inputs.push_back(inputs[1]);
  linear("o", "c", 6);
  nodes.push_back(ShardSpec().node("y", "o"));
  return nodes;
}

/// On every rank: its parts of the weights are those of one rank bit for bit, the rest is close.
void expect_that_of_one_rank(const HeadCase& c, Nodes (*nodes)(const HeadCase&, bool), std::int64_t width) {
  Bench alone("cpu", "reference", 1);
  const Results whole = Graph(alone, nullptr, nodes(c, false), {"y"}, fields_of(c, width)).results("y");
  MeshRanks world(c.mesh);
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    Graph graph(bench, &at, nodes(c, true), {"y"}, fields_of(c, width));
    const Results found = graph.results("y"), wanted = graph.here(whole);
    for (const auto& [name, values] : wanted) {
      if (wanted.count("d " + name) == 0) continue;
      EXPECT_EQ(found.at(name), values) << name;
    }
    expect_close(found, wanted, 1e-12, c.title);
  });
  EXPECT_EQ(errors, no_errors(world.size()));
}

class MambaHeads : public ::testing::TestWithParam<HeadCase> {};
INSTANTIATE_TEST_SUITE_P(Grids, MambaHeads,
                         ::testing::Values(HeadCase{"GroupsOverTwo", {2}, 4, 2, {0}},
                                           HeadCase{"TwoGroupsEachOverTwo", {2}, 8, 4, {0}},
                                           HeadCase{"OneGroupOverTwo", {2}, 4, 1, {0}},
                                           HeadCase{"OneGroupOverTwoWithDocuments", {2}, 4, 1, {0}, {}, true},
                                           HeadCase{"GroupsOverFour", {4}, 4, 4, {0}, {}, true},
                                           HeadCase{"OneGroupOverFour", {4}, 8, 1, {0}},
                                           HeadCase{"TwoGroupsOverFour", {4}, 8, 2, {0}, {}, true},
                                           HeadCase{"FourGroupsOverTwoAxes", {2, 2}, 8, 4, {0, 1}},
                                           HeadCase{"TwoGroupsOverTwoAxes", {2, 2}, 8, 2, {1, 0}, {}, true},
                                           HeadCase{"OneGroupOverTwoAxes", {2, 2}, 4, 1, {0, 1}},
                                           HeadCase{"GroupsBesideSamples", {2, 2}, 4, 2, {1}, {0}, true},
                                           HeadCase{"OneGroupBesideSamples", {2, 2}, 4, 1, {0}, {1}, true},
                                           HeadCase{"SamplesAlone", {2, 2}, 4, 2, {}, {0}},
                                           HeadCase{"ARankWithoutSamples", {4}, 4, 2, {}, {0}, true},
                                           HeadCase{
                                               "ARankWithoutSamplesAndASharedGroup", {2, 4}, 4, 1, {0}, {1}}),
                         [](const auto& info) { return info.param.title; });

TEST_P(MambaHeads, N9_AreThoseOfOneRankWithAllGradients) {
  expect_that_of_one_rank(GetParam(), mamba_nodes, 6);
}

class AttentionHeads : public ::testing::TestWithParam<HeadCase> {};
INSTANTIATE_TEST_SUITE_P(Grids, AttentionHeads,
                         ::testing::Values(HeadCase{"OverTwo", {2}, 4, 4, {0}},
                                           HeadCase{"KeyHeadsOverTwo", {2}, 4, 2, {0}, {}, true},
                                           HeadCase{"OverFour", {4}, 8, 4, {0}, {}, true},
                                           HeadCase{"OverTwoAxes", {2, 2}, 8, 4, {1, 0}},
                                           HeadCase{"BesideSamples", {2, 2}, 4, 2, {1}, {0}, true},
                                           HeadCase{"SamplesAlone", {2, 2}, 2, 1, {}, {1}, true},
                                           HeadCase{"ARankWithoutSamples", {4}, 4, 2, {}, {0}, true}),
                         [](const auto& info) { return info.param.title; });

TEST_P(AttentionHeads, N9_AreThoseOfOneRankWithAllGradients) {
  expect_that_of_one_rank(GetParam(), attention_nodes, 6);
}

struct Refused {
  const char* title;
  Nodes nodes;
  const char* words;
};

/// Graphs of x [4, 6, 12] and documents [4, 6] on a grid of 2 x 2.
std::vector<Refused> refusals() {
  const auto part = [](const char* name, const char* input, Numbers dims, Numbers axes) {
    return ShardSpec{std::move(dims), std::move(axes), {}}.node(name, input);
  };
  const auto mamba = [](const char* x, std::int64_t heads, std::int64_t groups, Numbers axes) {
    return NodeSpec{"c",
                    "mamba2",
                    {x},
                    {{"heads", heads},
                     {"groups", groups},
                     {"head_width", std::int64_t{2}},
                     {"state", std::int64_t{3}},
                     {"axes", std::move(axes)}}};
  };
  const auto attention = [](std::vector<std::string> inputs, std::int64_t heads, std::int64_t kv_heads) {
    return NodeSpec{"c", "attention", std::move(inputs), {{"heads", heads}, {"kv_heads", kv_heads}}};
  };
  const auto linear = [](const char* name, std::int64_t features) {
    return NodeSpec{name, "linear", {"x"}, {{"features", features}, {"axes", Numbers{0, 1}}}};
  };
  NodeSpec apart = mamba("part", 4, 2, {1});
  apart.inputs.push_back("documents");
  return {
      {"AHeadAcrossGroups",
       {mamba("x", 6, 3, {0})},
       "layer 'c': option 'axes' shares 6 heads in 3 groups among 2 ranks, but a rank must have whole "
       "groups, "
       "or as many heads of one group as each of the others: heads and groups must divide together; choose "
       "axes of which 3 ranks are a divisor or a multiple, and which divide the heads"},
      {"HeadsThatDoNotDivide",
       {mamba("x", 6, 2, {0, 1})},
       "layer 'c': option 'axes' shares 6 heads in 2 groups among 4 ranks, but a rank must have whole "
       "groups, "
       "or as many heads of one group as each of the others: heads and groups must divide together; choose "
       "axes of which 2 ranks are a divisor or a multiple, and which divide the heads"},
      {"TimeOfMamba",
       {part("part", "x", {1}, {0}), mamba("part", 4, 2, {1})},
       "layer 'c': x must have whole sequences of whole rows on every rank, found [4, 6, 12], dimension 1 "
       "sharded over axis 0 at 0, 3, 6; put a repartition before the layer that shards dimension 0 alone"},
      {"AxisOfTheSamples",
       {part("part", "x", {0}, {0}), mamba("part", 4, 2, {0})},
       "layer 'c': axis 0 of option 'axes' shards input 0 already ([4, 6, 12], dimension 0 sharded over axis "
       "0 at 0, 2, 4); name another axis, or put a repartition before the layer that leaves axis 0 to "
       "copies"},
      {"DocumentsThatLieElsewhere",
       {part("part", "x", {0}, {0}), apart},
       "layer 'c': the documents must be sharded as the samples of x are, found [4, 6, 12], dimension 0 "
       "sharded over axis 0 at 0, 2, 4, and [4, 6]; put a repartition before one"},
      {"NoSuchAxis",
       {mamba("x", 4, 2, {2})},
       "layer 'c': option 'axes' names axis 2 of the mesh, but parallel.grid has 2 axes"},
      {"FewerKeyHeadsThanRanks",
       {linear("q", 16), linear("k", 8), attention({"q", "k", "k"}, 4, 2)},
       "layer 'c': 4 heads of q with 2 heads of k and v do not divide over 4 ranks: a rank must have whole "
       "heads of k and v with all the heads of q that read them, found q of [4, 6, 16], dimension 2 sharded "
       "over axes 0, 1 at 0, 4, 8, 12, 16; share them over axes whose ranks divide option 'kv_heads', or put "
       "repartitions of q, k and v before the layer"},
      {"KeysThatLieElsewhere",
       {part("q", "x", {2}, {0}), attention({"q", "x", "q"}, 2, 2)},
       "layer 'c': k must be sharded as q is, which is [4, 6, 12], dimension 2 sharded over axis 0 at 0, 6, "
       "12, found [4, 6, 12]; expected [4, 6, 12], dimension 2 sharded over axis 0 at 0, 6, 12"},
      {"TimeOfAttention",
       {part("q", "x", {1}, {0}), attention({"q", "q", "q"}, 2, 2)},
       "layer 'c': q must have whole sequences on every rank, found [4, 6, 12], dimension 1 sharded over "
       "axis "
       "0 at 0, 3, 6; put a repartition before the layer that shards samples or heads instead"},
      {"HalfAHeadOfARotation",
       {part("q", "x", {2, 2}, {0, 1}), {"c", "rotary", {"q"}, {{"heads", std::int64_t{2}}}}},
       "layer 'c': a rank must have whole heads, which are 6 columns wide, found x of [4, 6, 12], dimension "
       "2 "
       "sharded over axes 0, 1 at 0, 3, 6, 9, 12; share x over axes whose ranks divide the heads"},
      {"HalfARowOfANormOfHeads",
       {part("q", "x", {2}, {0}), {"c", "rms_norm", {"q"}, {{"columns", std::int64_t{6}}}}},
       "layer 'c': option 'columns' needs whole columns on every rank, and they are sharded: [4, 6, 12], "
       "dimension 2 sharded over axis 0 at 0, 6, 12"},
  };
}

class HeadRefusals : public ::testing::TestWithParam<Refused> {};
INSTANTIATE_TEST_SUITE_P(All, HeadRefusals, ::testing::ValuesIn(refusals()),
                         [](const auto& entry) { return entry.param.title; });

TEST_P(HeadRefusals, P14_SameErrorOnAllRanks) {
  MeshRanks world({2, 2});
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    Graph(bench, &at, GetParam().nodes, {"c"}, {real_field("x", Shape{4, 6, 12}), documents_of(4, 6)});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, GetParam().words);
}

}  // namespace
}  // namespace model_parallel::heads_test
