// Properties P2, P4, P7, P12 and P14 of batch, layer and RMS norms in parts: random shapes, sharded along any
// dimensions into uneven and empty parts on meshes of 1 to 8 ranks, against one rank.
#include "graphs.hpp"

#include <tenon/testing/mesh_ranks.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <mutex>

namespace model_parallel::norms_test {
namespace {

using tenon::testing::MeshRanks;

struct NormCase {
  std::string type;
  Shape x;
  double eps = 1e-5, centre = 0;
  ShardSpec sharding;

  std::string text() const {
    return type + " of " + x.text() + " about " + std::to_string(centre) + sharding.text();
  }
  bool of_batches() const { return type == "batch_norm"; }
  bool rows_are_whole() const {
    const auto& dims = sharding.dims;
    return !of_batches() && std::find(dims.begin(), dims.end(), x.rank() - 1) == dims.end();
  }
};

NormCase random_case(const std::vector<int>& mesh, Draw& draw) {
  NormCase c;
  const char* types[] = {"batch_norm", "batch_norm", "layer_norm", "rms_norm"};
  c.type = types[draw.integer(0, 3)];
  std::int64_t together = 0;  // elements that are normalised together; of two, gradients are what cancels
  while (together < 3) {
    c.x = draw.shape(2, 4, 7);
    together = c.of_batches() ? c.x.elements() / c.x[1] : c.x[c.x.rank() - 1];
  }
  c.eps = draw.coin() ? 1e-5 : 0.3;
  c.centre = draw.coin() ? 0 : 2;
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    if (draw.integer(0, 5) == 0) continue;  // copies
    c.sharding.dims.push_back(draw.integer(0, c.x.rank() - 1));
    c.sharding.axes.push_back(axis);
  }
  make_uneven(c.sharding, c.x, mesh, draw);
  return c;
}

/// A norm "n" whose output is gathered as "y", with drawn gains and biases.
class NormGraph {
 public:
  NormGraph(Bench& bench, const NormCase& c, Mesh* mesh, const char* precision = "fp64")
      : graph_(bench, mesh, nodes(c, mesh != nullptr), {"y"}, {field(c)}, precision) {
    for (const ParameterInfo& info : harness().executor().parameters()) {
      if (info.spec.role != tenon::Role::kParameter || info.local.elements() == 0) continue;
      const auto all = rounded(tenon::testing::normals(info.spec.shape.elements(), info.spec.name));
      harness().set_parameter(info.spec.name, part_of_values(all, info));
    }
  }

  /// Outputs, gradients of two backwards, running values after four slots, and the output by them.
  Results results() {
    Results out = graph_.results("y");
    for (int slot = 0; slot < 4; ++slot) {
      harness().forward({.slot = slot});
      harness().executor().publish(harness().weights());
    }
    for (const ParameterInfo& info : harness().executor().parameters()) {
      if (info.local.elements() > 0) out[info.spec.name] = harness().parameter(info.spec.name);
    }
    harness().forward({.training = false});
    out["evaluated"] = harness().value("y");
    return out;
  }
  Results here(const Results& whole) { return graph_.here(whole); }

 private:
  /// Numbers that float32 represents, too.
  static std::vector<double> rounded(std::vector<double> values, double centre = 0) {
    for (double& value : values) value = static_cast<double>(static_cast<float>(value + centre));
    return values;
  }
  static TestField field(const NormCase& c) {
    TestField x = real_field("x", c.x);
    x.values = rounded(x.values, c.centre);
    return x;
  }
  static std::vector<NodeSpec> nodes(const NormCase& c, bool spread) {
    std::vector<NodeSpec> list;
    if (spread) list.push_back(c.sharding.node("spread", "x"));
    list.push_back({"n", c.type, {spread ? "spread" : "x"}, {{"eps", c.eps}}});
    list.push_back(ShardSpec().node("y", "n"));
    return list;
  }
  LayerHarness& harness() { return graph_.harness(); }

  Graph graph_;
};

class Norms : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Norms, ::testing::Range(1, 9));

TEST_P(Norms, P12_PartsHaveTheStatisticsGradientsAndRunningValuesOfOneRank) {
  Draw draw(1200 + static_cast<unsigned>(GetParam()));
  Bench alone("cpu", "reference", 1);
  for (int w = 0; w < 5; ++w) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<NormCase> cases;
    std::vector<Results> expected;
    for (int i = 0; i < 8; ++i) {
      cases.push_back(random_case(mesh, draw));
      expected.push_back(NormGraph(alone, cases.back(), nullptr).results());
    }
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        NormGraph graph(bench, cases[i], &at);
        const Results found = graph.results(), wanted = graph.here(expected[i]);
        expect_close(found, wanted, 1e-11, cases[i].text());
        if (cases[i].rows_are_whole()) {
          EXPECT_EQ(found.at("y"), wanted.at("y")) << cases[i].text();
        }
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

// Squares minus the square of the mean would lose 6 digits here.
TEST(NormParts, P12_FarFromZeroNoDigitsAreLost) {
  Bench alone("cpu", "reference", 1);
  for (const char* type : {"batch_norm", "layer_norm"}) {
    const NormCase c{type, {6, 3, 5, 17}, 1e-5, 1000, {{0, 3}, {0, 1}, {}}};
    const Results expected = NormGraph(alone, c, nullptr).results();
    MeshRanks world({2, 3});
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      NormGraph graph(bench, c, &at);
      expect_close(graph.results(), graph.here(expected), 1e-11, c.text());
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

// Two of the four ranks have nothing.
TEST(NormParts, P7_AllRanksHaveTheSameBits) {
  for (const char* type : {"batch_norm", "layer_norm", "rms_norm"}) {
    const NormCase c{type, {5, 3, 7}, 1e-5, 2, {{0, 0}, {0, 1}, {0, 2, 3, 0}}};
    std::mutex adding;
    std::vector<Results> found;
    MeshRanks world({2, 2});
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "auto", 1);
      Results mine = NormGraph(bench, c, &at).results();
      const std::lock_guard lock(adding);
      found.push_back(std::move(mine));
    });
    EXPECT_EQ(errors, no_errors(4));
    for (const Results& results : found) EXPECT_EQ(results, found.front()) << type;
  }
}

// Sums are made in float64, so what float32 adds are roundings on the way of one element: of the mean (whose
// size is the centre's), of the distance from it, rstd, their product, gain, bias; of gradients twice as
// many, and their inputs carry those. A total of n terms carries what each of them has, which is sqrt(n)
// times more beside the sum of terms of both signs.
TEST(NormParts, P4_SinglePrecisionAddsTheRoundingsOfOneElement) {
  constexpr double kUnit = 0x1p-24, kCentre = 3, kForward = 8 * (1 + kCentre), kBackward = 3 * kForward;
  Bench alone("cpu", "reference", 1);
  const NormCase cases[] = {{"batch_norm", {8, 3, 9, 7}, 1e-5, kCentre, {{0, 3}, {0, 1}, {}}},
                            {"layer_norm", {6, 5, 301}, 1e-5, kCentre, {{2, 0}, {0, 1}, {}}},
                            {"rms_norm", {6, 5, 301}, 1e-5, kCentre, {{0, 2}, {0, 1}, {}}}};
  for (const NormCase& c : cases) {
    const double terms = static_cast<double>(c.of_batches() ? c.x.elements() / c.x[1] : c.x[0] * c.x[1]);
    const Results expected = NormGraph(alone, c, nullptr).results();
    MeshRanks world({2, 2});
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "auto", 1);
      NormGraph graph(bench, c, &at, "fp32");
      const Results found = graph.results(), wanted = graph.here(expected);
      for (const auto& [name, values] : wanted) {
        if (name == "loss") continue;  // one sum over all outputs, with either sign
        const double roundings = name == "d x"            ? kBackward
                                 : name.starts_with("d ") ? kBackward * std::sqrt(terms)
                                                          : kForward;
        expect_close({{name, found.at(name)}}, {{name, values}}, roundings * kUnit, c.text());
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

/// The device of a bench, less one family.
class Lacking final : public tenon::Device {
 public:
  Lacking(tenon::Device& device, std::string_view family) : device_(device), family_(family) {}
  void open(const tenon::DeviceSpec&) override {}
  tenon::MemorySpace space() const override { return device_.space(); }
  void* allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override { device_.release(memory, bytes); }
  void copy(tenon::TensorView from, tenon::TensorView to) override { device_.copy(from, to); }
  void synchronize() override { device_.synchronize(); }
  std::string_view kernel_choice() const override { return device_.kernel_choice(); }
  std::string_view features() const override { return device_.features(); }
  void* query(std::string_view id) override { return id == family_ ? nullptr : device_.query(id); }

 private:
  tenon::Device& device_;
  std::string_view family_;
};

/// The error of a graph on each of four ranks.
std::vector<std::string> errors_of(const std::vector<NodeSpec>& nodes, const Shape& x) {
  MeshRanks world({2, 2});
  return world.run([&](Mesh& at) {
    Bench bench("cpu", "reference", 1);
    const auto precision = bench.make_component<tenon::Precision>("fp64", "");
    Lacking device(*bench.device, "tenon.device.part_norm/1");
    LayerHarness harness({.layers = bench.layers.get(),
                          .device = &device,
                          .host = &bench.host,
                          .precision = precision.component.get(),
                          .mesh = &at},
                         nodes, {"y"}, {real_field("x", x)});
    harness.forward();
    harness.backward(1.0, true);
  });
}

TEST(NormParts, P14_OnlyWhatCrossesRanksAsksForTheFamily) {
  struct Case {
    const char* type;
    ShardSpec sharding;
    bool refused;
  };
  const Case cases[] = {
      {"batch_norm", {{1, 1}, {0, 1}, {}}, false}, {"batch_norm", {{0}, {1}, {}}, true},
      {"layer_norm", {{0, 1}, {0, 1}, {}}, false}, {"layer_norm", {{1, 2}, {0, 1}, {}}, true},
      {"rms_norm", {{0, 1}, {0, 1}, {}}, false},   {"rms_norm", {{2}, {0}, {}}, true}};
  for (const Case& c : cases) {
    const auto errors =
        errors_of({c.sharding.node("spread", "x"), {"n", c.type, {"spread"}, {}}, ShardSpec().node("y", "n")},
                  {3, 5, 4});
    for (const std::string& error : errors) {
      EXPECT_THAT(error, ::testing::HasSubstr(c.refused ? "does not offer the operator family "
                                                          "'tenon.device.part_norm/1' that the model needs"
                                                        : ""));
      EXPECT_EQ(error.empty(), !c.refused) << c.type << c.sharding.text() << ": " << error;
    }
  }
}

TEST(NormParts, P14_RefusalsAreTheSameOnAllRanksAndNameWholeShapes) {
  const ShardSpec channels{{1}, {0}, {}};
  for (const std::string& error : errors_of(
           {channels.node("spread", "x"), {"n", "batch_norm", {"spread"}, {}}, ShardSpec().node("y", "n")},
           {1, 4}))
    EXPECT_THAT(error, ::testing::HasSubstr("layer 'n': expected more than one value per channel to take a "
                                            "variance of, found x of shape [1, 4]; raise [data] batch"));
}

}  // namespace
}  // namespace model_parallel::norms_test
