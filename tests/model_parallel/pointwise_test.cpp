// Properties P4 and P9 of layers that compute element by element: on parts they equal one rank bit for bit,
// dropout's masks included; linear ones accept partial sums over ranks, maps refuse them.
#include "graphs.hpp"

#include <tenon/testing/mesh_ranks.hpp>

namespace model_parallel::pointwise_test {
namespace {

using tenon::DType;
using tenon::testing::HarnessSpec;
using tenon::testing::MeshRanks;

/// x as a partial sum over axis 0 of the mesh: its ranks hold multiples of x that add up to it. Created as a
/// whole tensor, so that its gradient is whole.
class Terms final : public tenon::Layer {
 public:
  void infer(tenon::InferContext& context) override {
    device_ = &context.device();
    const tenon::ValueSpec x = context.input(0);
    Layout layout = x.layout;
    const Mesh& mesh = context.mesh();
    if (mesh.axes() > 0) {
      layout.partial = {0};
      factor_ = mesh.coordinate(0) == 0 ? 3 - 2 * mesh.extent(0) : 2;
    }
    context.output({x.shape, x.dtype, layout});
  }
  void forward(tenon::ForwardContext& context) override {
    auto x = tenon::testing::read(*device_, context.input(0));
    for (double& value : x) value *= factor_;
    tenon::testing::write(*device_, context.output(0), x);
  }
  void backward(tenon::BackwardContext& context) override {
    device_->copy(context.output_gradient(0), context.input_gradient(0).view);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  tenon::Device* device_ = nullptr;
  double factor_ = 1;
};

/// Layers by type name, and `terms`.
class WithTerms final : public tenon::LayerFactory {
 public:
  explicit WithTerms(tenon::LayerFactory& others) : others_(others) {}
  std::unique_ptr<tenon::LayerOwner> create(const NodeSpec& node) override {
    if (node.type == "terms") return std::make_unique<Owner>();
    return others_.create(node);
  }

 private:
  struct Owner final : tenon::LayerOwner {
    tenon::Layer& layer() override { return terms; }
    Terms terms;
  };
  tenon::LayerFactory& others_;
};

/// "y" and the gradient of x in two slots, the second of which begins at another sample.
Results results(Bench& bench, Mesh* mesh, const std::vector<NodeSpec>& nodes, const Shape& x,
                const char* precision = "fp64") {
  const auto chosen = bench.make_component<tenon::Precision>(precision, "");
  WithTerms layers(*bench.layers);
  const HarnessSpec spec{.layers = &layers,
                         .device = bench.device.component.get(),
                         .host = &bench.host,
                         .precision = chosen.component.get(),
                         .mesh = mesh};
  LayerHarness harness(spec, nodes, {"y"}, {real_field("x", x)});
  Results out;
  for (const std::int64_t slot : {3, 4}) {
    harness.forward({.slot = slot, .first_sample = slot == 3 ? 0 : 1000003});
    harness.backward(1.0, true);
    out["y" + std::to_string(slot)] = harness.value("y");
    out["d x" + std::to_string(slot)] = harness.input_gradient("x");
  }
  return out;
}

ShardSpec random_sharding(const Shape& x, const std::vector<int>& mesh, Draw& draw) {
  ShardSpec sharding;
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    if (draw.integer(0, 6) == 0) continue;  // copies
    sharding.dims.push_back(draw.integer(0, x.rank() - 1));
    sharding.axes.push_back(axis);
  }
  make_uneven(sharding, x, mesh, draw);
  return sharding;
}

/// `nodes` between a sharded x, unless there is no mesh, and y, which is whole. They read "part" and end in
/// "out".
std::vector<NodeSpec> around(const ShardSpec& sharding, bool spread, const std::vector<NodeSpec>& nodes) {
  std::vector<NodeSpec> list{(spread ? sharding : ShardSpec()).node("part", "x")};
  list.insert(list.end(), nodes.begin(), nodes.end());
  list.push_back(ShardSpec().node("y", "out"));
  return list;
}

class Pointwise : public ::testing::TestWithParam<int> {
 protected:
  /// Random values in random shardings through `nodes`.
  void expect_equal_bits(const std::vector<NodeSpec>& nodes, const char* precision, unsigned seed) {
    Draw draw(seed + static_cast<unsigned>(GetParam()));
    Bench alone("cpu", "auto", 1);
    for (int w = 0; w < 2; ++w) {
      const std::vector<int> mesh = draw.mesh(GetParam());
      std::vector<Shape> shapes;
      std::vector<ShardSpec> shardings;
      std::vector<Results> expected;
      for (int i = 0; i < 8; ++i) {
        shapes.push_back(draw.shape(2, 5, 6));
        shardings.push_back(random_sharding(shapes.back(), mesh, draw));
        expected.push_back(results(alone, nullptr, around({}, false, nodes), shapes.back(), precision));
      }
      MeshRanks world(mesh);
      const auto errors = world.run([&](Mesh& at) {
        Bench bench("cpu", "auto", 1);
        for (std::size_t i = 0; i < shardings.size(); ++i) {
          EXPECT_EQ(results(bench, &at, around(shardings[i], true, nodes), shapes[i], precision), expected[i])
              << shapes[i].text() << shardings[i].text();
        }
      });
      EXPECT_EQ(errors, no_errors(world.size()));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Pointwise, ::testing::Range(1, 9));

// The value that dropout reads is read once more, so that its gradient adds to what is there.
TEST_P(Pointwise, P9_DropoutMasksAreThoseOfOneRank) {
  const std::vector<NodeSpec> nodes{{"drop", "dropout", {"part"}, {{"p", 0.4}}},
                                    {"again", "dropout", {"drop"}, {{"p", 0.2}}},
                                    {"out", "residual", {"again", "part"}, {}}};
  expect_equal_bits(nodes, "fp64", 800);
  expect_equal_bits(nodes, "fp32", 820);
}

TEST_P(Pointwise, P4_MapsAndSumsOfPartsAreThoseOfOneRank) {
  expect_equal_bits({{"a", "gelu", {"part"}, {}},
                     {"b", "silu", {"part"}, {}},
                     {"c", "residual", {"a", "b"}, {}},
                     {"d", "relu", {"c"}, {}},
                     {"e", "squared_relu", {"d"}, {}},
                     {"f", "gate", {"e", "b"}, {}},
                     {"out", "residual", {"f", "part"}, {}}},
                    "fp64", 840);
}

TEST(Residual, P14_InputsThatLieApartAreRefusedOnAllRanksAlike) {
  MeshRanks world({2});
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    const ShardSpec even{{0}, {0}, {}}, uneven{{0}, {0}, {3, 1}};
    results(bench, &at,
            {even.node("a", "x"),
             uneven.node("b", "x"),
             {"n", "residual", {"a", "b"}, {}},
             ShardSpec().node("y", "n")},
            {4, 6});
  });
  EXPECT_EQ(errors,
            std::vector<std::string>(2,
                                     "layer 'n': the inputs must be sharded alike over the mesh, found [4, "
                                     "6], dimension 0 sharded over axis 0 at 0, 2, 4, and [4, 6], dimension "
                                     "0 sharded over axis 0 at 0, 3, 4; put a repartition before one"));
}

TEST(Sums, P4_PassThroughLinearLayersAndP9_SoDoMasks) {
  const std::vector<NodeSpec> nodes{{"terms", "terms", {"x"}, {}},
                                    {"drop", "dropout", {"terms"}, {{"p", 0.4}}},
                                    {"twice", "residual", {"drop", "terms"}, {}},
                                    ShardSpec().node("y", "twice")};
  Bench alone("cpu", "reference", 1);
  const Results expected = results(alone, nullptr, nodes, {3, 4, 5});
  MeshRanks world({3, 2});
  const auto errors = world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    expect_close(results(bench, &at, nodes, {3, 4, 5}), expected, 1e-14, "terms");
  });
  EXPECT_EQ(errors, no_errors(6));
}

TEST(Sums, P14_AreRefusedByMapsAndLosses) {
  const std::pair<NodeSpec, const char*> cases[] = {
      {{"n", "relu", {"terms"}, {}},
       "layer 'n': x is a sum over ranks ([4, 6], a sum over axis 0); put a repartition before the map"},
      {{"n", "mse", {"terms", "terms"}, {}},
       "layer 'n': predictions and targets must be sharded alike over the mesh and must not be partial sums, "
       "found [4, 6], a sum over axis 0, and [4, 6], a sum over axis 0; put a repartition before one"},
  };
  for (const auto& entry : cases) {  // clang 14 lets no lambda capture a structured binding
    MeshRanks world({2});
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      results(bench, &at, {{"terms", "terms", {"x"}, {}}, entry.first, ShardSpec().node("y", "n")}, {4, 6});
    });
    EXPECT_EQ(errors, std::vector<std::string>(2, entry.second));
  }
}

}  // namespace
}  // namespace model_parallel::pointwise_test
