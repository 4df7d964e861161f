// Small graphs of layers over a mesh: the sharding of their inputs, and all their results, beside those
// of one rank.
#pragma once

#include "parts.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

namespace model_parallel {

using tenon::NodeSpec;
using tenon::testing::Bench;
using tenon::testing::LayerHarness;
using tenon::testing::TestField;
using Numbers = std::vector<std::int64_t>;

/// The sharding of a value by a repartition.
struct ShardSpec {
  Numbers dims, axes, sizes;

  NodeSpec node(const std::string& name, const std::string& input) const {
    NodeSpec node{name, "repartition", {input}, {{"dims", dims}, {"axes", axes}}};
    if (!sizes.empty()) node.options.push_back({"sizes", sizes});
    return node;
  }
  std::string text() const {
    std::string out;
    for (const auto& [name, list] : {std::pair{" dims", &dims}, {" axes", &axes}, {" sizes", &sizes}}) {
      out += name;
      for (const std::int64_t number : *list) out += " " + std::to_string(number);
    }
    return out;
  }
};

/// Makes half of the shardings of one dimension alone uneven; empty parts are usual.
inline void make_uneven(ShardSpec& sharding, const Shape& x, const std::vector<int>& mesh, Draw& draw) {
  const bool one = !sharding.dims.empty() && std::all_of(sharding.dims.begin(), sharding.dims.end(),
                                                         [&](auto dim) { return dim == sharding.dims[0]; });
  if (!one || !draw.coin()) return;
  int parts = 1;
  for (const std::int64_t axis : sharding.axes) parts *= mesh[axis];
  const auto offsets = draw.offsets(x[static_cast<int>(sharding.dims[0])], parts);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) sharding.sizes.push_back(offsets[i + 1] - offsets[i]);
}

/// Layers through the real executor, on this rank.
class Graph {
 public:
  Graph(Bench& bench, Mesh* mesh, std::vector<NodeSpec> nodes, const std::vector<std::string>& pulled,
        std::vector<TestField> fields, const char* precision = "fp64")
      : precision_(bench.make_component<tenon::Precision>(precision, "")),
        harness_({.layers = bench.layers.get(),
                  .device = bench.device.component.get(),
                  .host = &bench.host,
                  .precision = precision_.component.get(),
                  .mesh = mesh},
                 std::move(nodes), pulled, std::move(fields)) {}

  /// Returns `output`, the loss, all weights that have elements here and all gradients. Runs two backwards,
  /// so that the second adds to the first.
  Results results(const std::string& output) {
    Results out;
    for (const bool first : {true, false}) {
      out["loss"] = {harness_.forward()};
      harness_.backward(1.0, first);
    }
    for (auto& [name, values] : harness_.all_gradients()) out["d " + name] = std::move(values);
    for (const ParameterInfo& info : harness_.executor().parameters()) {
      if (info.local.elements() > 0) out[info.spec.name] = harness_.parameter(info.spec.name);
    }
    out[output] = harness_.value(output);
    return out;
  }
  /// This rank's part of `whole`, the results of one rank: of weights and their gradients its parts.
  Results here(Results whole) {
    return model_parallel::here(std::move(whole), harness_.executor().parameters());
  }
  LayerHarness& harness() { return harness_; }

 private:
  tenon::testing::Made<tenon::Precision> precision_;
  LayerHarness harness_;
};

inline TestField real_field(const char* name, const Shape& shape) {
  return {name, shape, tenon::DType::kF64, tenon::testing::normals(shape.elements(), name)};
}

}  // namespace model_parallel
