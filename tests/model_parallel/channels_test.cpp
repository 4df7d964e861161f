// Properties P2, P4, P5, P9 and P14 of convolutions and pools whose channels or features are sharded over
// axes of the mesh, in addition to space and samples, on 1 to 8 ranks, against one rank.
#include "window_cases.hpp"

#include <gmock/gmock.h>

namespace model_parallel::channels_test {
namespace {

using tenon::testing::MeshRanks;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool several(const Numbers& axes, const std::vector<int>& mesh) {
  return std::any_of(axes.begin(), axes.end(), [&](std::int64_t axis) { return mesh[axis] > 1; });
}

/// Every axis goes to a dimension, to the features, or to copies; groups may be split.
WindowCase random_channel_case(const std::vector<int>& mesh, Draw& draw) {
  WindowCase c = draw_windows(draw, draw.integer(1, 6));
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    const std::int64_t fate = draw.integer(0, 8);
    if (fate == 0) continue;
    if (fate <= 3) {
      c.over.push_back(axis);
    } else {
      c.dims.push_back(fate <= 6 ? 1 : fate == 7 ? draw.integer(2, c.x.rank() - 1) : 0);
      c.axes.push_back(axis);
    }
  }
  draw_sizes(c, mesh, draw);
  const bool grouped = draw.integer(0, 2) == 0;
  if (grouped) c.groups = c.x[1];
  if (grouped && c.shards(1)) c.over.clear();
  c.features = c.groups * draw.integer(1, grouped ? 2 : 7);
  if (draw.integer(0, 3) == 0) c.backward = "scatter";
  c.overlap = c.backward == "gather" && draw.coin();
  return c;
}

class Channels : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Channels, ::testing::Range(1, 9));

TEST_P(Channels, P4_ShardedChannelsAndFeaturesAreOneRankAndP9_SoAreTheirWeights) {
  Draw draw(700 + static_cast<unsigned>(GetParam()));
  Bench alone("cpu", "reference", 1);
  for (int w = 0; w < 4; ++w) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<WindowCase> cases;
    std::vector<Results> expected;
    for (int i = 0; i < 10; ++i) {
      cases.push_back(random_channel_case(mesh, draw));
      expected.push_back(results(alone, cases.back(), nullptr, cases.back().type).values);
    }
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const WindowCase& c = cases[i];
        const Found found = results(bench, c, &at, c.type);
        const Results wanted = here(expected[i], found.parameters);
        const bool conv = c.type == "conv", sums = conv && c.groups == 1 && c.shards(1);
        if (!sums) {
          EXPECT_EQ(found.values.at("y"), wanted.at("y")) << c.text();
        }
        if (conv && c.backward == "gather" && !several(c.over, mesh)) {
          EXPECT_EQ(found.values.at("d x"), wanted.at("d x")) << c.text();
        }
        for (const ParameterInfo& info : found.parameters) {
          if (info.local.elements() == 0) continue;
          EXPECT_EQ(found.values.at(info.spec.name), wanted.at(info.spec.name)) << c.text();
        }
        expect_close(found.values, wanted, 1e-12, c.text());
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

/// A convolution 4 channels -> 6 features, 3 wide over 8 points.
WindowCase plain_case() {
  WindowCase c;
  c.type = "conv", c.x = Shape{2, 4, 8};
  c.kernel = {3}, c.stride = {1}, c.dilation = {1}, c.padding = {1};
  c.features = 6;
  return c;
}

// A map of a sum is not the sum of maps.
TEST(ChannelsOfAGrid, P4_NoMapIsFoldedIntoTermsOfASum) {
  const auto nodes = [](bool spread) {
    WindowCase c = plain_case();
    c.dims = {1}, c.axes = {0};
    auto list = nodes_of(c, spread, "conv");
    list.back().inputs = {"act"};
    list.insert(list.end() - 1, NodeSpec{"act", "relu", {"c"}, {}});
    return list;
  };
  const auto run = [&](Bench& bench, Mesh* mesh) {
    const auto precision = bench.make_component<tenon::Precision>("fp64", "");
    const HarnessSpec spec{.layers = bench.layers.get(),
                           .device = bench.device.component.get(),
                           .host = &bench.host,
                           .precision = precision.component.get(),
                           .keep_values = false,
                           .mesh = mesh};
    LayerHarness harness(spec, nodes(mesh != nullptr), {"y"},
                         {{"x", Shape{2, 4, 8}, tenon::DType::kF64, tenon::testing::normals(64, "x")}});
    Results out{{"loss", {harness.forward()}}};
    harness.backward(1.0, true);
    out["d x"] = harness.input_gradient("x");
    return out;
  };
  Bench alone("cpu", "reference", 1);
  const Results expected = run(alone, nullptr);
  MeshRanks world({3});
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    expect_close(run(bench, &at), expected, 1e-12, "a map after sharded channels");
  });
  EXPECT_EQ(errors, no_errors(world.size()));
}

struct Misfit {
  const char* title;
  WindowCase spec;
  std::vector<int> mesh;
  const char* words;
};

std::vector<Misfit> misfits() {
  const auto with = [](auto change) {
    WindowCase c = plain_case();
    change(c);
    return c;
  };
  return {
      {"NoSuchAxis",
       with([](WindowCase& c) { c.over = {1}; }),
       {2},
       "axis 1 of the mesh is to shard the features, but parallel.grid has 1 axes"},
      {"AxisShardsX",
       with([](WindowCase& c) { c.over = {0}, c.dims = {2}, c.axes = {0}; }),
       {2},
       "axis 0 of the mesh is to shard the features, but it shards x ([2, 4, 8], dimension 2 sharded over "
       "axis 0 at 0, 4, 8); choose axes over which x is replicated, or put a repartition before the layer"},
      {"AxisTwice",
       with([](WindowCase& c) {
         c.over = {0, 0};
       }),
       {2},
       "axis 0 of the mesh is used twice"},
      {"ShardedWithinAGroup",
       with([](WindowCase& c) {
         c.groups = 2, c.dims = {1}, c.axes = {0}, c.sizes = {1, 3};
       }),
       {2},
       "channels of x are sharded at 0, 1, 4, but its 2 groups have 2 channels each; shard between groups, "
       "or put a repartition before the layer that shards other dimensions"},
      {"GroupsShardedTwice",
       with([](WindowCase& c) { c.groups = 2, c.dims = {1}, c.axes = {0}, c.over = {1}; }),
       {2, 2},
       "the 2 groups are sharded with the channels of x ([2, 4, 8], dimension 1 sharded over axis 0 at 0, 2, "
       "4), and their features with them; leave out the option axes"},
      {"OverlapOfScatters",
       with([](WindowCase& c) { c.overlap = true, c.backward = "scatter"; }),
       {2},
       "overlap = true needs backward = \"gather\""},
  };
}

class Misfits : public ::testing::TestWithParam<Misfit> {};
INSTANTIATE_TEST_SUITE_P(All, Misfits, ::testing::ValuesIn(misfits()),
                         [](const auto& entry) { return entry.param.title; });

TEST_P(Misfits, P14_AreTheSameErrorOnAllRanks) {
  MeshRanks world(GetParam().mesh);
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    results(bench, GetParam().spec, &at, "conv");
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("layer 'c': "), HasSubstr(GetParam().words)));
}

}  // namespace
}  // namespace model_parallel::channels_test
