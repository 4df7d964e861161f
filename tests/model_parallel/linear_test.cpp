// Properties P2, P4 and P9 of linear layers, embeddings, positions and flatten over meshes: random
// shardings of inputs and of weights on meshes of 1 to 8 ranks, with uneven and empty parts, against one
// rank; and refusals that are equal on all ranks (P14).
#include "graphs.hpp"

#include <tenon/testing/mesh_ranks.hpp>

#include <atomic>
#include <set>

namespace model_parallel::linear_test {
namespace {

using tenon::testing::MeshRanks;
using Nodes = std::vector<NodeSpec>;

struct LinearCase {
  Shape x;
  std::int64_t features = 1;
  bool bias = true, scatter = false;
  ShardSpec sharding;
  Numbers axes;  ///< that shard the features

  std::string text() const {
    std::string out = "x " + x.text() + " to " + std::to_string(features) + sharding.text() + " over";
    for (const std::int64_t axis : axes) out += " " + std::to_string(axis);
    return out + (scatter ? " scattered" : "") + (bias ? "" : " without bias");
  }
  bool shards(std::int64_t dim) const {
    return std::find(sharding.dims.begin(), sharding.dims.end(), dim) != sharding.dims.end();
  }
  /// Returns whether sums cross ranks in forward.
  bool sums(const std::vector<int>& mesh) const {
    for (std::size_t i = 0; i < sharding.dims.size(); ++i)
      if (sharding.dims[i] == x.rank() - 1 && mesh[sharding.axes[i]] > 1) return true;
    return false;
  }
};

/// Every axis shards the features, the columns of x, one of its other dimensions, or nothing.
LinearCase random_case(const std::vector<int>& mesh, Draw& draw) {
  LinearCase c;
  c.x = draw.shape(2, 4, 7);
  c.features = draw.integer(1, 9), c.bias = draw.integer(0, 3) > 0;
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    const auto fate = draw.integer(0, 6);
    if (fate == 0) continue;  // copies
    if (fate <= 2) {
      c.axes.push_back(axis);
      continue;
    }
    c.sharding.axes.push_back(axis);
    c.sharding.dims.push_back(fate <= 4 ? c.x.rank() - 1 : draw.integer(0, c.x.rank() - 1));
  }
  draw.shuffle(c.axes);
  make_uneven(c.sharding, c.x, mesh, draw);
  c.scatter = c.shards(c.x.rank() - 1) && draw.coin();
  return c;
}

/// x, then "c", then "y", which every rank has whole.
Nodes nodes_of(const LinearCase& c, bool spread) {
  NodeSpec layer{"c", "linear", {spread ? "spread" : "x"}, {{"features", c.features}, {"bias", c.bias}}};
  layer.options.push_back({"bias_init_scale", 0.5});
  Nodes nodes;
  if (spread) {
    nodes.push_back(c.sharding.node("spread", "x"));
    layer.options.insert(layer.options.end(), {{"axes", c.axes}, {"scatter", c.scatter}});
  }
  nodes.push_back(layer);
  nodes.push_back(ShardSpec().node("y", "c"));
  return nodes;
}

/// Weights are parts of those of one rank bit for bit (P9), the rest is close.
void expect_parts(Graph& graph, const Results& found, const Results& whole, const std::string& what) {
  const Results wanted = graph.here(whole);
  for (const auto& [name, values] : wanted) {
    if (wanted.count("d " + name) > 0) {
      EXPECT_EQ(found.at(name), values) << name << " of " << what;
    }
  }
  expect_close(found, wanted, 1e-12, what);
}

class Linear : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Linear, ::testing::Range(1, 9));

TEST_P(Linear, P4_IsThatOfOneRankWithP2_ItsGradientsAndP9_ItsWeights) {
  Draw draw(1200 + static_cast<unsigned>(GetParam()));
  Bench alone("cpu", "reference", 1);
  std::atomic<int> without_weight{0}, exact{0};
  for (int w = 0; w < 3; ++w) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<LinearCase> cases;
    std::vector<Results> expected;
    for (int i = 0; i < 20; ++i) {
      cases.push_back(random_case(mesh, draw));
      const LinearCase& c = cases.back();
      expected.push_back(
          Graph(alone, nullptr, nodes_of(c, false), {"y"}, {real_field("x", c.x)}).results("y"));
    }
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        Graph graph(bench, &at, nodes_of(cases[i], true), {"y"}, {real_field("x", cases[i].x)});
        const Results found = graph.results("y");
        if (!cases[i].sums(mesh)) {
          EXPECT_EQ(found.at("y"), expected[i].at("y")) << cases[i].text();
          ++exact;
        }
        without_weight += found.count("c.weight") == 0 ? 1 : 0;
        expect_parts(graph, found, expected[i], cases[i].text());
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
  EXPECT_GT(exact, 0) << "sums cross ranks in all cases";
  if (GetParam() >= 4) {
    EXPECT_GT(without_weight, 0) << "the cases leave no rank without a part of the weight";
  }
}

// Channels over axis 0, then columns over the axes in turn: between the layers only sums are communicated.
TEST_P(Linear, P4_ColumnsThatAlternateBetweenAxesBehindChannelsAreThoseOfOneRank) {
  Draw draw(1300 + static_cast<unsigned>(GetParam()));
  const Shape x{3, 5, 2, 3};
  const auto nodes = [](bool spread) {
    const auto over = [&](std::int64_t axis) { return Numbers(spread ? 1 : 0, axis); };
    Nodes list;
    if (spread) list.push_back(ShardSpec{.dims = {1}, .axes = {0}, .sizes = {}}.node("spread", "x"));
    const NodeSpec rest[] = {{"flat", "flatten", {spread ? "spread" : "x"}, {}},
                             {"fc1", "linear", {"flat"}, {{"features", std::int64_t{7}}, {"axes", over(1)}}},
                             {"act", "gelu", {"fc1"}, {}},
                             {"fc2", "linear", {"act"}, {{"features", std::int64_t{6}}, {"axes", over(0)}}},
                             {"fc3", "linear", {"fc2"}, {{"features", std::int64_t{4}}, {"axes", over(1)}}},
                             ShardSpec().node("y", "fc3")};
    list.insert(list.end(), std::begin(rest), std::end(rest));
    return list;
  };
  Bench alone("cpu", "reference", 1);
  const Results expected = Graph(alone, nullptr, nodes(false), {"y"}, {real_field("x", x)}).results("y");
  std::set<std::vector<int>> meshes{{1, GetParam()}, {GetParam(), 1}};
  for (const int rows : {2, 3, 4})
    if (GetParam() % rows == 0) meshes.insert({rows, GetParam() / rows});
  for (const std::vector<int>& mesh : meshes) {
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      Graph graph(bench, &at, nodes(true), {"y"}, {real_field("x", x)});
      expect_parts(graph, graph.results("y"), expected, "the chain");
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

TEST_P(Linear, P4_EmbeddingsAndPositionsAreThoseOfOneRankBitForBitWithP9_TheirTables) {
  Draw draw(1400 + static_cast<unsigned>(GetParam()));
  Bench alone("cpu", "reference", 1);
  for (int w = 0; w < 6; ++w) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    const Shape ids{draw.integer(1, 4), draw.integer(1, 7)};
    const std::int64_t width = draw.integer(1, 6);
    ShardSpec sharding;
    Numbers axes;
    for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
      const auto fate = draw.integer(0, 4);
      if (fate == 1) axes.push_back(axis);
      if (fate <= 1) continue;
      sharding.axes.push_back(axis);
      sharding.dims.push_back(fate % 2);
    }
    make_uneven(sharding, ids, mesh, draw);
    const auto nodes = [&](bool spread) {
      Nodes list;
      if (spread) list.push_back(sharding.node("spread", "ids"));
      const NodeSpec rest[] = {
          {"c",
           "embedding",
           {spread ? "spread" : "ids"},
           {{"rows", std::int64_t{5}}, {"width", width}, {"axes", spread ? axes : Numbers()}}},
          {"p", "positions", {"c"}, {{"context", ids[1] + 2}}},
          {"g", "positions", {"p", spread ? "spread" : "ids"}, {{"context", std::int64_t{5}}}},
          ShardSpec().node("y", "g")};
      list.insert(list.end(), std::begin(rest), std::end(rest));
      return list;
    };
    const std::vector<TestField> fields{
        {"ids", ids, tenon::DType::kI32, tenon::testing::integers(ids.elements(), 5, "ids")}};
    const Results expected = Graph(alone, nullptr, nodes(false), {"y"}, fields).results("y");
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      Graph graph(bench, &at, nodes(true), {"y"}, fields);
      const Results found = graph.results("y");
      EXPECT_EQ(found.at("y"), expected.at("y")) << ids.text() << sharding.text();
      expect_parts(graph, found, expected, ids.text() + sharding.text());
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

// Two of eight ranks have no rows of the weight. Sums over ranks are rounded to bf16 once per rank more.
TEST(LinearFormats, P4_NarrowFormatsTakeEmptyPartsAndSumsOverRanks) {
  LinearCase c;
  c.x = Shape{4, 32}, c.features = 3;
  c.sharding = {{1}, {0}, {}}, c.axes = {1};
  for (const char* precision : {"bf16", "mxfp8"}) {
    Bench alone("cpu", "auto", 1);
    const Results expected =
        Graph(alone, nullptr, nodes_of(c, false), {"y"}, {real_field("x", c.x)}, precision).results("y");
    MeshRanks world({2, 4});
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "auto", 1);
      Graph graph(bench, &at, nodes_of(c, true), {"y"}, {real_field("x", c.x)}, precision);
      expect_close(graph.results("y"), graph.here(expected), 0.03, precision);
    });
    EXPECT_EQ(errors, no_errors(world.size())) << precision;
  }
}

struct Refused {
  const char* title;
  ShardSpec sharding;  ///< of x [4, 6, 2], and of its numbers
  Nodes nodes;
  const char* words;
};

std::vector<Refused> refusals() {
  const auto linear = [](Numbers axes, bool scatter = false) {
    return Nodes{{"c",
                  "linear",
                  {"spread"},
                  {{"features", std::int64_t{3}}, {"axes", std::move(axes)}, {"scatter", scatter}}}};
  };
  const auto embedding = [](Numbers axes) {
    return NodeSpec{"e",
                    "embedding",
                    {"ids"},
                    {{"rows", std::int64_t{3}}, {"width", std::int64_t{2}}, {"axes", std::move(axes)}}};
  };
  const Nodes sharded_ids{{"part", "repartition", {"ids"}, {{"dims", Numbers{0}}, {"axes", Numbers{1}}}}};
  Nodes embeds = sharded_ids, tied{embedding({0})};
  embeds.push_back(embedding({1}));
  embeds.back().inputs = {"part"};
  tied.push_back(
      {"c", "linear", {"spread"}, {{"features", std::int64_t{3}}, {"weight", std::string("e.weight")}}});
  return {
      {"NoSuchAxis",
       {},
       linear({2}),
       "layer 'c': option 'axes' names axis 2 of the mesh, but parallel.grid has 2 axes"},
      {"AxisTwice", {}, linear({1, 1}), "layer 'c': option 'axes' names axis 1 twice"},
      {"AxisOfTheColumns",
       {{2}, {1}, {2, 0}},
       linear({0, 1}),
       "layer 'c': axis 1 of option 'axes' shards input 0 already ([4, 6, 2], dimension 2 sharded over axis "
       "1 at 0, 2, 2); name another axis, or put a repartition before the layer that leaves axis 1 to "
       "copies"},
      {"AxisOfTheRows",
       {{0, 1}, {1, 0}, {}},
       linear({0}),
       "layer 'c': axis 0 of option 'axes' shards input 0 already ([4, 6, 2], dimension 0 sharded over axis "
       "1 at 0, 2, 4, dimension 1 sharded over axis 0 at 0, 3, 6); name another axis, or put a repartition "
       "before the layer that leaves axis 0 to copies"},
      {"ScatterWithoutASum",
       {{1}, {0}, {}},
       linear({1}, true),
       "layer 'c': option 'scatter' needs x sharded in its last dimension, found [4, 6, 2], dimension 1 "
       "sharded over axis 0 at 0, 3, 6; put a repartition before the layer, or leave the option out"},
      {"PartsOfColumns",
       {{2}, {1}, {}},
       {{"c", "flatten", {"spread"}, {}}},
       "layer 'c': shards of a sample must be runs of its elements, found [4, 6, 2], dimension 2 sharded "
       "over axis 1 at 0, 1, 2; put a repartition before the layer that shards dimension 0, or dimension 1 "
       "alone"},
      {"AxisOfTheIds",
       {},
       embeds,
       "layer 'e': axis 1 of option 'axes' shards input 0 already ([4, 6], dimension 0 sharded over axis 1 "
       "at 0, 2, 4); name another axis, or put a repartition before the layer that leaves axis 1 to copies"},
      {"TiedWeightsThatLieApart",
       {},
       tied,
       "parameter 'e.weight' is declared as f64 [3, 2], dimension 1 sharded over axis 0 at 0, 1, 2 and by "
       "node 'c' as f64 [3, 2]; tied parameters must agree"},
  };
}

class LinearRefusals : public ::testing::TestWithParam<Refused> {};
INSTANTIATE_TEST_SUITE_P(All, LinearRefusals, ::testing::ValuesIn(refusals()),
                         [](const auto& entry) { return entry.param.title; });

TEST_P(LinearRefusals, P14_SameErrorOnAllRanks) {
  const Refused& c = GetParam();
  const Shape x{4, 6, 2}, ids{4, 6};
  Nodes nodes{c.sharding.node("spread", "x")};
  nodes.insert(nodes.end(), c.nodes.begin(), c.nodes.end());
  MeshRanks world({2, 2});
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    Graph(bench, &at, nodes, {nodes.back().name},
          {real_field("x", x), {"ids", ids, tenon::DType::kI32, tenon::testing::integers(24, 3, "ids")}});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, c.words);
}

}  // namespace
}  // namespace model_parallel::linear_test
