// Properties P2, P4 and P5 of convolutions and pools in parts: random kernels, strides, dilations and pads
// over 1 to 3 dimensions on grids of 1 to 8 ranks, with uneven and empty parts, against one rank; and one
// rank against the sequential layers.
#include "cases.hpp"
#include "results.hpp"

#include <tenon/index_map.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/grid_ranks.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <cmath>
#include <map>

namespace model_parallel {
namespace {

using tenon::NodeSpec;
using tenon::testing::Bench;
using tenon::testing::GridRanks;
using tenon::testing::HarnessSpec;
using tenon::testing::LayerHarness;
using tenon::testing::TestField;
using Numbers = std::vector<std::int64_t>;

struct WindowCase {
  std::string type;  ///< conv, max_pool, average_pool
  Shape x;
  Numbers kernel, stride, dilation, padding;
  std::int64_t features = 1, groups = 1, chunk = 0;
  Numbers dims, axes, sizes;  ///< of the repartition before it

  std::string text() const {
    std::string out = type + " over " + x.text();
    for (const auto& [name, list] : {std::pair{" k", &kernel},
                                     {" s", &stride},
                                     {" d", &dilation},
                                     {" p", &padding},
                                     {" dims", &dims},
                                     {" axes", &axes},
                                     {" sizes", &sizes}}) {
      out += name;
      for (const std::int64_t number : *list) out += " " + std::to_string(number);
    }
    return out;
  }
};

bool fits(const WindowCase& c) {
  for (std::size_t d = 0; d < c.kernel.size(); ++d) {
    const tenon::Sliding window{c.kernel[d], c.stride[d], c.dilation[d], c.padding[d], c.padding[d]};
    if (window.outputs(c.x[static_cast<int>(d) + 2]) == 0) return false;
    if (c.type != "conv" && 2 * c.padding[d] > c.kernel[d]) return false;
  }
  return true;
}

WindowCase random_case(const std::vector<int>& grid, Draw& draw) {
  WindowCase c;
  do {
    c = WindowCase();
    c.type = std::vector<std::string>{"conv", "conv", "max_pool",
                                      "average_pool"}[static_cast<std::size_t>(draw.integer(0, 3))];
    const int spatial = draw.small(1, 3);
    Numbers extents{draw.integer(1, 3), 2 * draw.integer(1, 2)};
    for (int d = 0; d < spatial; ++d) {
      extents.push_back(draw.integer(1, spatial == 3 ? 7 : 13));
      c.kernel.push_back(draw.integer(1, 5));
      c.stride.push_back(draw.integer(1, 4));
      c.dilation.push_back(c.type == "average_pool" ? 1 : draw.integer(1, 3));
      c.padding.push_back(draw.integer(0, 3));
    }
    c.x = Shape(std::span<const std::int64_t>(extents));
  } while (!fits(c));
  c.groups = draw.integer(1, 2), c.features = c.groups * draw.integer(1, 3), c.chunk = draw.integer(0, 2);
  for (int axis = 0; axis < static_cast<int>(grid.size()); ++axis) {
    if (draw.integer(0, 5) == 0) continue;  // copies
    const std::int64_t dim = draw.integer(1, c.x.rank() - 1);
    c.dims.push_back(dim == 1 ? 0 : dim);
    c.axes.push_back(axis);
  }
  const bool one =
      !c.dims.empty() && std::all_of(c.dims.begin(), c.dims.end(), [&](auto d) { return d == c.dims[0]; });
  if (one && draw.coin()) {
    int parts = 1;
    for (const std::int64_t axis : c.axes) parts *= grid[static_cast<std::size_t>(axis)];
    const auto offsets = draw.offsets(c.x[static_cast<int>(c.dims[0])], parts);
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) c.sizes.push_back(offsets[i + 1] - offsets[i]);
  }
  return c;
}

/// x, then "c", then "y" as every rank has all of it.
std::vector<NodeSpec> nodes_of(const WindowCase& c, bool spread, const std::string& type) {
  std::vector<NodeSpec> nodes;
  if (spread) {
    nodes.push_back({"spread", "repartition", {"x"}, {{"dims", c.dims}, {"axes", c.axes}}});
    if (!c.sizes.empty()) nodes.back().options.push_back({"sizes", c.sizes});
  }
  NodeSpec node{"c",
                type,
                {spread ? "spread" : "x"},
                {{"kernel", c.kernel}, {"stride", c.stride}, {"padding", c.padding}}};
  if (c.type != "average_pool") node.options.push_back({"dilation", c.dilation});
  if (c.type == "conv") {
    node.options.insert(node.options.end(),
                        {{"features", c.features}, {"groups", c.groups}, {"chunk", c.chunk}});
  }
  nodes.push_back(node);
  nodes.push_back({"y", "repartition", {"c"}, {}});
  return nodes;
}

/// "y" and all gradients. Two backwards, so that the second adds to what the first left.
Results results(Bench& bench, const WindowCase& c, ModelGrid* grid, const std::string& type) {
  const auto precision = bench.make_component<tenon::Precision>("fp64", "");
  const TestField x{"x", c.x, tenon::DType::kF64, tenon::testing::normals(c.x.elements(), "x")};
  const HarnessSpec spec{.layers = bench.layers.get(),
                         .device = bench.device.component.get(),
                         .host = &bench.host,
                         .precision = precision.component.get(),
                         .grid = grid};
  LayerHarness harness(spec, nodes_of(c, grid != nullptr, type), {"y"}, {x});
  for (const bool first : {true, false}) {
    harness.forward();
    harness.backward(1.0, first);
  }
  Results out = harness.all_gradients();
  out["y"] = harness.value("y");
  return out;
}

class Windows : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Windows, ::testing::Range(1, 9));

TEST_P(Windows, P4_AreThoseOfOneRankAndP5_SoAreAllGradients) {
  Draw draw(400 + static_cast<unsigned>(GetParam()));
  Bench alone("cpu", "reference", 1);
  for (int w = 0; w < 4; ++w) {
    const std::vector<int> grid = draw.grid(GetParam());
    std::vector<WindowCase> cases;
    std::vector<Results> expected;
    for (int i = 0; i < 10; ++i) {
      cases.push_back(random_case(grid, draw));
      expected.push_back(results(alone, cases.back(), nullptr, cases.back().type));
    }
    GridRanks world(grid);
    const auto errors = world.run([&](ModelGrid& at) {
      Bench bench("cpu", "reference", 1);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const Results found = results(bench, cases[i], &at, cases[i].type);
        // Outputs are sums within one rank, in the same order everywhere.
        EXPECT_EQ(found.at("y"), expected[i].at("y")) << cases[i].text();
        expect_close(found, expected[i], 1e-12, cases[i].text());
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

TEST(Windows, OnOneRankAreTheSequentialLayersOfImages) {
  Draw draw(9);
  Bench bench("cpu", "reference", 1);
  const std::map<std::string, std::string> sequential{
      {"conv", "conv2d"}, {"max_pool", "max_pool2d"}, {"average_pool", "average_pool2d"}};
  for (int i = 0; i < 500; ++i) {
    WindowCase c = random_case({1}, draw);
    if (c.kernel.size() != 2) continue;
    expect_close(results(bench, c, nullptr, c.type), results(bench, c, nullptr, sequential.at(c.type)), 1e-14,
                 c.text());
  }
}

}  // namespace
}  // namespace model_parallel
