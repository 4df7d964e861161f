// One layer over x in parts against the same layer on one rank, for layers that change the extents of x
// [batch, channels, extent...].
#pragma once

#include "graphs.hpp"

#include <tenon/testing/mesh_ranks.hpp>

#include <cmath>
#include <numeric>

namespace model_parallel {

/// A layer "c" that reads x, which is sharded before it.
struct LayerInParts {
  NodeSpec layer;
  Shape x;
  ShardSpec sharding;

  std::string text() const {
    std::string out = layer.type + " of " + x.text() + sharding.text();
    for (const tenon::NamedOption& option : layer.options) {
      out += " " + option.name;
      if (const auto* list = std::get_if<Numbers>(&option.value))
        for (const std::int64_t number : *list) out += " " + std::to_string(number);
      if (const auto* number = std::get_if<std::int64_t>(&option.value)) out += " " + std::to_string(*number);
      if (const auto* text = std::get_if<std::string>(&option.value)) out += " " + *text;
    }
    return out;
  }
};

/// Every axis shards a dimension, of the channels only if `channels`, or nothing.
inline ShardSpec random_sharding(const Shape& x, const std::vector<int>& mesh, bool channels, Draw& draw) {
  ShardSpec sharding;
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    if (draw.integer(0, 5) == 0) continue;  // copies
    const std::int64_t dim = draw.integer(1, x.rank() - 1);
    sharding.dims.push_back(dim == 1 && (!channels || draw.coin()) ? 0 : dim);
    sharding.axes.push_back(axis);
  }
  make_uneven(sharding, x, mesh, draw);
  return sharding;
}

/// x, "c" on it, then "y", which every rank has whole.
class RunInParts {
 public:
  RunInParts(Bench& bench, const LayerInParts& c, Mesh* mesh, const char* precision = "fp64")
      : x_(tenon::testing::normals(c.x.elements(), "x")),
        precision_(bench.make_component<tenon::Precision>(precision, "")),
        harness_({.layers = bench.layers.get(),
                  .device = bench.device.component.get(),
                  .host = &bench.host,
                  .precision = precision_.component.get(),
                  .mesh = mesh},
                 nodes(c, mesh != nullptr), {"y"}, {{"x", c.x, tenon::DType::kF64, x_}}) {
    // Biases are zero at first.
    for (const ParameterInfo& info : harness_.executor().parameters())
      harness_.set_parameter(info.spec.name,
                             tenon::testing::normals(info.spec.shape.elements(), info.spec.name));
  }

  /// "y" and all gradients. Two backwards, so that the second adds to the first.
  Results results() {
    for (const bool first : {true, false}) {
      harness_.forward();
      harness_.backward(1.0, first);
    }
    Results out = harness_.all_gradients();
    out["y"] = harness_.value("y");
    return out;
  }

  /// Difference of <F x, d_y> and <x, F* d_y>, relative to the larger of |F x| |d_y| and |x| |F* d_y|; also
  /// for a layer that is linear in its weight and adds a bias.
  double adjoint_error() {
    const double loss = harness_.forward();
    harness_.backward(1.0, true);
    const std::vector<double> y = harness_.value("y"), d_y = harness_.field("d_y");
    const Results gradients = harness_.all_gradients();
    double bias = 0, worst = 0;
    if (gradients.count("c.bias") > 0) bias = dot(harness_.parameter("c.bias"), gradients.at("c.bias"));
    for (const auto& [name, gradient] : gradients) {
      if (name == "c.bias") continue;
      const std::vector<double> of = name == "x" ? x_ : harness_.parameter(name);
      const double largest = std::max(dot(y, y) * dot(d_y, d_y), dot(of, of) * dot(gradient, gradient));
      const double apart = std::abs(loss - bias - dot(of, gradient));
      worst = std::max(worst, apart == 0 ? 0 : apart / std::sqrt(largest));
    }
    return worst;
  }

 private:
  static std::vector<NodeSpec> nodes(const LayerInParts& c, bool spread) {
    std::vector<NodeSpec> list;
    if (spread) list.push_back(c.sharding.node("spread", "x"));
    list.push_back(c.layer);
    list.back().name = "c", list.back().inputs = {spread ? "spread" : "x"};
    list.push_back(ShardSpec().node("y", "c"));
    return list;
  }
  static double dot(const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }

  std::vector<double> x_;
  tenon::testing::Made<tenon::Precision> precision_;
  LayerHarness harness_;
};

/// `worlds` meshes of so many ranks with `cases` layers each: y is that of one rank bit for bit, since every
/// output is a sum within one rank; the gradients, which are summed over ranks, to 1e-12; and the layer in
/// parts is adjoint to its backward.
template <typename RandomCase>
void expect_as_on_one_rank(int ranks, Draw draw, int worlds, int cases, RandomCase random_case) {
  Bench alone("cpu", "reference", 1);
  for (int w = 0; w < worlds; ++w) {
    const std::vector<int> mesh = draw.mesh(ranks);
    std::vector<LayerInParts> layers;
    std::vector<Results> expected;
    for (int i = 0; i < cases; ++i) {
      layers.push_back(random_case(mesh, draw));
      expected.push_back(RunInParts(alone, layers.back(), nullptr).results());
    }
    tenon::testing::MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        RunInParts run(bench, layers[i], &at);
        const Results found = run.results();
        EXPECT_EQ(found.at("y"), expected[i].at("y")) << layers[i].text();
        expect_close(found, expected[i], 1e-12, layers[i].text());
        EXPECT_LT(run.adjoint_error(), 1e-12) << layers[i].text();
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

/// The same of y alone, in float32 with the fastest kernels, to `tolerance` of its largest element.
template <typename RandomCase>
void expect_fast_outputs_as_on_one_rank(int ranks, Draw draw, int cases, double tolerance,
                                        RandomCase random_case) {
  const std::vector<int> mesh = draw.mesh(ranks);
  const auto outputs = [](Bench& bench, const LayerInParts& layer, Mesh* at) {
    return Results{{"y", RunInParts(bench, layer, at, "fp32").results().at("y")}};
  };
  Bench alone("cpu", "auto", 1);
  std::vector<LayerInParts> layers;
  std::vector<Results> expected;
  for (int i = 0; i < cases; ++i) {
    layers.push_back(random_case(mesh, draw));
    expected.push_back(outputs(alone, layers.back(), nullptr));
  }
  tenon::testing::MeshRanks world(mesh);
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "auto", 1);
    for (std::size_t i = 0; i < layers.size(); ++i)
      expect_close(outputs(bench, layers[i], &at), expected[i], tolerance, layers[i].text());
  });
  EXPECT_EQ(errors, no_errors(world.size()));
}

}  // namespace model_parallel
