// Random convolutions and pools over random meshes, and the results of a rank.
#pragma once

#include "parts.hpp"

#include <tenon/sdk/linear_map.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>
#include <tenon/testing/mesh_ranks.hpp>

namespace model_parallel {

using tenon::NodeSpec;
using tenon::testing::Bench;
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
  Numbers over;               ///< axes that shard the features
  std::string backward = "gather", precision = "fp64";
  bool overlap = false;
  bool read_twice = false;  ///< another node reads x, so that its gradient is added to

  std::string text() const {
    std::string out = type + " " + backward + (overlap ? " overlap " : " ") + precision + " over " +
                      x.text() + " f " + std::to_string(features) + " g " + std::to_string(groups);
    for (const auto& [name, list] : {std::pair{" k", &kernel},
                                     {" s", &stride},
                                     {" d", &dilation},
                                     {" p", &padding},
                                     {" dims", &dims},
                                     {" axes", &axes},
                                     {" sizes", &sizes},
                                     {" features over", &over}}) {
      out += name;
      for (const std::int64_t number : *list) out += " " + std::to_string(number);
    }
    return out;
  }
  bool shards(std::int64_t dim) const { return std::find(dims.begin(), dims.end(), dim) != dims.end(); }
};

inline bool fits(const WindowCase& c) {
  for (std::size_t d = 0; d < c.kernel.size(); ++d) {
    const tenon::Sliding window{c.kernel[d], c.stride[d], c.dilation[d], c.padding[d], c.padding[d]};
    if (window.outputs(c.x[static_cast<int>(d) + 2]) == 0) return false;
    if (c.type != "conv" && 2 * c.padding[d] > c.kernel[d]) return false;
  }
  return true;
}

/// Windows over x with so many channels; nothing is sharded.
inline WindowCase draw_windows(Draw& draw, std::int64_t channels) {
  WindowCase c;
  do {
    c = WindowCase();
    c.type = std::vector<std::string>{"conv", "conv", "max_pool", "average_pool"}[draw.integer(0, 3)];
    const int spatial = draw.small(1, 3);
    Numbers extents{draw.integer(1, 3), channels};
    for (int d = 0; d < spatial; ++d) {
      extents.push_back(draw.integer(1, spatial == 3 ? 7 : 13));
      c.kernel.push_back(draw.integer(1, 5));
      c.stride.push_back(draw.integer(1, 4));
      c.dilation.push_back(c.type == "average_pool" ? 1 : draw.integer(1, 3));
      c.padding.push_back(draw.integer(0, 3));
    }
    c.x = Shape(std::span<const std::int64_t>(extents));
  } while (!fits(c));
  c.chunk = draw.integer(0, 2);
  c.read_twice = draw.coin();
  return c;
}

/// If one dimension alone is sharded, its parts may be uneven.
inline void draw_sizes(WindowCase& c, const std::vector<int>& mesh, Draw& draw) {
  const bool one =
      !c.dims.empty() && std::all_of(c.dims.begin(), c.dims.end(), [&](auto d) { return d == c.dims[0]; });
  if (!one || !draw.coin()) return;
  int parts = 1;
  for (const std::int64_t axis : c.axes) parts *= mesh[axis];
  const auto offsets = draw.offsets(c.x[static_cast<int>(c.dims[0])], parts);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) c.sizes.push_back(offsets[i + 1] - offsets[i]);
}

/// x, then "c", then "y", which every rank has whole, and "z" where x is read twice.
inline std::vector<NodeSpec> nodes_of(const WindowCase& c, bool spread, const std::string& type) {
  std::vector<NodeSpec> nodes;
  const std::string x = spread ? "spread" : "x";
  if (spread) {
    nodes.push_back({"spread", "repartition", {"x"}, {{"dims", c.dims}, {"axes", c.axes}}});
    if (!c.sizes.empty()) nodes.back().options.push_back({"sizes", c.sizes});
  }
  NodeSpec node{"c", type, {x}, {{"kernel", c.kernel}, {"stride", c.stride}, {"padding", c.padding}}};
  if (c.type != "average_pool") node.options.push_back({"dilation", c.dilation});
  if (c.type == "conv") {
    node.options.insert(node.options.end(),
                        {{"features", c.features}, {"groups", c.groups}, {"chunk", c.chunk}});
    if (type == "conv") node.options.push_back({"backward", c.backward});
    if (spread) node.options.insert(node.options.end(), {{"axes", c.over}, {"overlap", c.overlap}});
  }
  nodes.push_back(node);
  nodes.push_back({"y", "repartition", {"c"}, {}});
  if (c.read_twice) nodes.push_back({"z", "repartition", {x}, {}});
  return nodes;
}

/// Results of a rank: "y", all weights, and all gradients as "d NAME".
struct Found {
  Results values;
  std::vector<ParameterInfo> parameters;
};

/// Two backwards, so that the second adds to what the first left.
inline Found results(Bench& bench, const WindowCase& c, Mesh* mesh, const std::string& type) {
  const auto precision = bench.make_component<tenon::Precision>(c.precision, "");
  const TestField x{"x", c.x, tenon::DType::kF64, tenon::testing::normals(c.x.elements(), "x")};
  const HarnessSpec spec{.layers = bench.layers.get(),
                         .device = bench.device.component.get(),
                         .host = &bench.host,
                         .precision = precision.component.get(),
                         .mesh = mesh};
  std::vector<std::string> pulled{"y"};
  if (c.read_twice) pulled.emplace_back("z");
  LayerHarness harness(spec, nodes_of(c, mesh != nullptr, type), pulled, {x});
  // Biases begin at zero, which would hide one that is lost or added twice.
  const auto biases = tenon::testing::normals(c.features, "bias");
  for (const ParameterInfo& info : harness.executor().parameters()) {
    if (info.spec.name == "c.bias" && info.local.elements() > 0)
      harness.set_parameter(info.spec.name, part_of_values(biases, info));
  }
  for (const bool first : {true, false}) {
    harness.forward();
    harness.backward(1.0, first);
  }
  Found out;
  out.parameters = harness.executor().parameters();
  for (auto& [name, values] : harness.all_gradients()) out.values["d " + name] = std::move(values);
  for (const ParameterInfo& info : out.parameters) {
    if (info.local.elements() > 0) out.values[info.spec.name] = harness.parameter(info.spec.name);
  }
  out.values["y"] = harness.value("y");
  return out;
}

}  // namespace model_parallel
