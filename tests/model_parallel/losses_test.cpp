// Property P13: losses and metrics of sharded values equal those of one rank, sums, counts and gradients,
// over meshes of 1 to 8 ranks, with uneven and empty parts and parts without counted targets; and refusals.
#include "graphs.hpp"

#include <tenon/testing/mesh_ranks.hpp>

#include <cmath>

namespace model_parallel::losses_test {
namespace {

using tenon::DType;
using tenon::NamedOption;
using tenon::testing::MeshRanks;

struct LossCase {
  std::string type;
  std::vector<NamedOption> options;
  Shape x;
  bool rows = true;  ///< targets are class numbers of rows
  std::vector<double> targets;
  ShardSpec sharding;

  std::string text() const { return type + " of " + x.text() + sharding.text(); }
  TestField target_field() const {
    if (!rows) return {"t", x, DType::kF64, targets};
    return {"t", Shape(x.extents().first(x.rank() - 1)), DType::kI32, targets};
  }
  /// On a mesh x and targets are sharded alike. Losses of rows are accompanied by their accuracy.
  std::vector<NodeSpec> nodes(bool spread) const {
    std::vector<NodeSpec> list;
    const std::vector<std::string> inputs{spread ? "x_part" : "x", spread ? "t_part" : "t"};
    if (spread) list = {sharding.node("x_part", "x"), sharding.node("t_part", "t")};
    if (rows) list.push_back({"accuracy", "accuracy", inputs, {}});
    if (type == "head_log_probs") {
      list.push_back({"log_probs", type, inputs, options});
      list.push_back({"sum",
                      "weighted_sum",
                      {"log_probs", inputs[1]},
                      {{"scale", -1.0}, {"metric", std::string("part")}}});
      list.push_back({"loss", "add_losses", {"sum", "sum"}, {}});
      return list;
    }
    list.push_back({"loss", type, inputs, options});
    return list;
  }
};

LossCase random_case(const std::vector<int>& mesh, Draw& draw) {
  LossCase c;
  c.type = std::vector<std::string>{"mse", "softmax_cross_entropy", "head_cross_entropy",
                                    "head_log_probs"}[draw.integer(0, 3)];
  c.rows = c.type != "mse";
  const std::int64_t classes = draw.integer(2, 6);
  Numbers extents;
  for (int d = draw.small(1, 3); d > 0; --d) extents.push_back(draw.integer(1, 9));
  extents.push_back(draw.integer(classes, 7));  // of the head, too, which the accuracy beside it reads
  c.x = Shape(std::span<const std::int64_t>(extents));
  if (c.rows && c.type != "head_log_probs") c.options.push_back({"label_smoothing", draw.coin() ? 0.0 : 0.2});
  if (c.type.starts_with("head"))
    c.options.insert(c.options.end(),
                     {{"vocabulary", classes}, {"chunk_rows", draw.integer(0, 3)}, {"init_scale", 0.7}});
  // A stretch of targets that do not count is as long as several parts.
  const std::int64_t elements = c.target_field().shape.elements(), begin = draw.integer(0, elements);
  for (std::int64_t i = 0; i < elements; ++i) {
    const bool counts = i < begin || draw.integer(0, 3) == 0;
    const double target =
        c.rows ? static_cast<double>(draw.integer(0, classes - 1)) : 0.25 * draw.small(-8, 8);
    c.targets.push_back(counts ? target : c.rows ? -1 : std::nan(""));
  }
  const int dims = c.rows ? c.x.rank() - 1 : c.x.rank();
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    if (draw.integer(0, 5) == 0) continue;  // copies
    c.sharding.dims.push_back(draw.integer(0, dims - 1));
    c.sharding.axes.push_back(axis);
  }
  make_uneven(c.sharding, c.x, mesh, draw);
  return c;
}

/// Sum and count of each loss, and all gradients. Two backwards, so that the second adds to the first. The
/// seed is that of a run: one over the targets of all parts.
Results results(Bench& bench, const LossCase& c, Mesh* mesh) {
  const auto precision = bench.make_component<tenon::Precision>("fp64", "");
  const tenon::testing::HarnessSpec spec{.layers = bench.layers.get(),
                                         .device = bench.device.component.get(),
                                         .host = &bench.host,
                                         .precision = precision.component.get(),
                                         .mesh = mesh};
  LayerHarness harness(spec, c.nodes(mesh != nullptr), {}, {real_field("x", c.x), c.target_field()});
  Results out;
  for (const bool first : {true, false}) {
    harness.forward();
    double count = 1;
    for (const tenon::LossValue& loss : harness.executor().losses()) {
      out[loss.metric] = {loss.sum};
      out["targets of " + loss.metric] = {loss.count};
      if (loss.metric == "loss") count = std::max(1.0, loss.count);
    }
    harness.backward(1 / count, first);
  }
  for (auto& [name, values] : harness.all_gradients()) out["d " + name] = std::move(values);
  return out;
}

class Losses : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Losses, ::testing::Range(1, 9));

TEST_P(Losses, P13_SumsCountsAndGradientsOfPartsAreThoseOfOneRank) {
  Draw draw(700 + static_cast<unsigned>(GetParam()));
  Bench alone("cpu", "reference", 1);
  for (int w = 0; w < 4; ++w) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<LossCase> cases;
    std::vector<Results> expected;
    for (int i = 0; i < 15; ++i) {
      cases.push_back(random_case(mesh, draw));
      expected.push_back(results(alone, cases.back(), nullptr));
    }
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const Results found = results(bench, cases[i], &at);
        EXPECT_EQ(found.at("targets of loss"), expected[i].at("targets of loss")) << cases[i].text();
        expect_close(found, expected[i], 1e-11, cases[i].text());
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

// One rank has all samples, the others none; or all counted targets are on one rank.
TEST(Losses, P13_ARankWithoutSamplesOrCountedTargetsAddsZero) {
  for (const char* type : {"mse", "softmax_cross_entropy", "head_cross_entropy", "head_log_probs"}) {
    for (const Numbers& sizes : {Numbers{0, 0, 6}, Numbers{6, 0, 0}, Numbers{2, 0, 4}}) {
      LossCase c{type, {}, {6, 5}, std::string(type) != "mse", {}, {{0}, {0}, sizes}};
      if (c.type.starts_with("head")) c.options.push_back({"vocabulary", std::int64_t{3}});
      const double none = c.rows ? -1 : std::nan("");
      c.targets.assign(c.target_field().shape.elements(), none);
      std::fill(c.targets.begin(), c.targets.begin() + (c.rows ? 2 : 10), 1.0);
      Bench alone("cpu", "reference", 1);
      const Results expected = results(alone, c, nullptr);
      MeshRanks world({3});
      const auto errors = world.run([&](Mesh& at) {
        Bench bench("cpu", "reference", 1);
        const Results found = results(bench, c, &at);
        EXPECT_EQ(found.at("targets of loss")[0], c.rows ? 2 : 10);
        expect_close(found, expected, 1e-11, c.text());
      });
      EXPECT_EQ(errors, no_errors(3)) << c.text();
    }
  }
}

TEST(Losses, P14_LayoutsThatDoNotFitAreRefusedOnAllRanksAlike) {
  const ShardSpec samples{{0}, {0}, {}}, columns{{1}, {0}, {}};
  const struct {
    const char* type;
    ShardSpec x, t;
    const char* words;
  } cases[] = {
      {"softmax_cross_entropy",
       samples,
       {},
       "the rows of logits and the targets must be sharded alike over the mesh and must not be partial sums, "
       "found [4, 6], dimension 0 sharded over axis 0 at 0, 2, 4, and [4]; put a repartition before one"},
      {"accuracy",
       {},
       samples,
       "the rows of logits and the targets must be sharded alike over the mesh and must not be partial sums, "
       "found [4, 6], and [4], dimension 0 sharded over axis 0 at 0, 2, 4; put a repartition before one"},
      {"softmax_cross_entropy",
       columns,
       {},
       "the last dimension of logits is sharded ([4, 6], dimension 1 sharded over axis 0 at 0, 3, 6), but a "
       "row must not be; put a repartition before the layer that shards other dimensions"},
      {"head_cross_entropy",
       columns,
       {},
       "the last dimension of x is sharded ([4, 6], dimension 1 sharded over axis 0 at 0, 3, 6), but a row "
       "must not be; put a repartition before the layer that shards other dimensions"},
      {"mse", samples, columns,
       "predictions and targets must be sharded alike over the mesh and must not be partial sums, found [4, "
       "6], dimension 0 sharded over axis 0 at 0, 2, 4, and [4, 6], dimension 1 sharded over axis 0 at 0, 3, "
       "6; put a repartition before one"},
  };
  for (const auto& c : cases) {
    NodeSpec node{"n", c.type, {"x_part", "t_part"}, {}};
    if (node.type == "head_cross_entropy") node.options.push_back({"vocabulary", std::int64_t{6}});
    const Shape x{4, 6};
    const TestField target =
        node.type == "mse" ? real_field("t", x) : TestField{"t", {4}, DType::kI32, std::vector<double>(4, 1)};
    MeshRanks world({2});
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      Graph(bench, &at, {c.x.node("x_part", "x"), c.t.node("t_part", "t"), node}, {},
            {real_field("x", x), target});
    });
    EXPECT_EQ(errors, std::vector<std::string>(2, std::string("layer 'n': ") + c.words));
  }
}

}  // namespace
}  // namespace model_parallel::losses_test
