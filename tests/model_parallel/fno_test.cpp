// Properties P2, P4, P9 and P11 of Fourier layers over meshes: spectral convolutions in pencils and
// slabs with odd, even, uneven and empty parts, and ranks without modes, against one rank; then the whole
// operator, from coordinates to the loss (P13).
#include "graphs.hpp"

#include <tenon/testing/mesh_ranks.hpp>

#include <mutex>

namespace model_parallel::fno_test {
namespace {

using tenon::testing::MeshRanks;

struct SpectralCase {
  Shape x;
  Numbers modes;
  std::int64_t features = 1;
  std::string form = "pencil";
  ShardSpec sharding;

  std::string text() const {
    std::string out = form + " of " + x.text() + " modes";
    for (const std::int64_t kept : modes) out += " " + std::to_string(kept);
    return out + sharding.text();
  }
};

/// A random sharding of [batch, channels, extents...]; the last dimension stays whole unless `last`.
ShardSpec random_spectral_sharding(const Shape& x, const std::vector<int>& mesh, bool last, Draw& draw) {
  ShardSpec sharding;
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    const std::int64_t dim = draw.integer(1, x.rank() - (last ? 1 : 2));
    if (draw.integer(0, 6) == 0 || (dim == 1 && draw.coin())) continue;  // copies
    sharding.dims.push_back(dim == 1 ? 0 : dim);
    sharding.axes.push_back(axis);
  }
  make_uneven(sharding, x, mesh, draw);
  return sharding;
}

SpectralCase random_case(const std::vector<int>& mesh, Draw& draw) {
  SpectralCase c;
  const int spatial = draw.small(1, 4);
  Numbers extents{draw.integer(1, 3), draw.integer(1, 3)};
  for (int d = 0; d < spatial; ++d) {
    const std::int64_t points = draw.integer(2, spatial > 2 ? 6 : 11);
    extents.push_back(points);
    c.modes.push_back(draw.integer(1, points / 2 + (d + 1 == spatial ? 1 : 0)));
  }
  c.x = Shape(std::span<const std::int64_t>(extents));
  c.features = draw.integer(1, 3);
  c.form = draw.integer(0, 2) == 0 ? "slab" : "pencil";
  c.sharding = random_spectral_sharding(c.x, mesh, c.form == "pencil", draw);
  return c;
}

class Fourier : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Fourier, ::testing::Range(1, 9));

TEST_P(Fourier, P11_PencilsAndSlabsAreThoseOfOneRankAndP9_SoAreTheirWeights) {
  Draw draw(900 + static_cast<unsigned>(GetParam()));
  const auto nodes = [](const SpectralCase& c, bool spread) {
    std::vector<NodeSpec> list;
    if (spread) list.push_back(c.sharding.node("spread", "x"));
    list.push_back({"c",
                    "spectral_conv",
                    {spread ? "spread" : "x"},
                    {{"modes", c.modes}, {"features", c.features}, {"form", c.form}}});
    list.push_back(ShardSpec().node("y", "c"));
    return list;
  };
  Bench alone("cpu", "reference", 1);
  int without_modes = 0;
  for (int w = 0; w < 4; ++w) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<SpectralCase> cases;
    std::vector<Results> expected;
    for (int i = 0; i < 10; ++i) {
      cases.push_back(random_case(mesh, draw));
      expected.push_back(
          Graph(alone, nullptr, nodes(cases.back(), false), {"y"}, {real_field("x", cases.back().x)})
              .results("y"));
    }
    std::mutex counting;
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        Graph graph(bench, &at, nodes(cases[i], true), {"y"}, {real_field("x", cases[i].x)});
        const Results found = graph.results("y"), wanted = graph.here(expected[i]);
        if (wanted.find("c.weight") == wanted.end()) {
          const std::lock_guard lock(counting);
          ++without_modes;
        } else {
          EXPECT_EQ(found.at("c.weight"), wanted.at("c.weight")) << cases[i].text();
        }
        if (cases[i].form == "pencil") {
          EXPECT_EQ(found.at("y"), wanted.at("y")) << cases[i].text();
          EXPECT_EQ(found.at("d x"), wanted.at("d x")) << cases[i].text();
        }
        expect_close(found, wanted, 1e-12, cases[i].text());
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
  if (GetParam() >= 6) {
    EXPECT_GT(without_modes, 0) << "the cases leave no rank without modes";
  }
}

// Samples are sharded, points are, both are; the far side of one of the meshes is all padding.
TEST_P(Fourier, P13_TheWholeOperatorHasTheLossAndGradientsOfOneRank) {
  Draw draw(950 + static_cast<unsigned>(GetParam()));
  const Shape x{4, 1, 7, 6}, t{4, 2, 7, 6};
  const auto nodes = [](const ShardSpec& sharding, bool spread) {
    std::vector<NodeSpec> list;
    if (spread) {
      list.push_back(sharding.node("spread", "x"));
      list.push_back(sharding.node("targets", "t"));
    }
    const NodeSpec rest[] = {
        {"at", "coordinates", {spread ? "spread" : "x"}, {}},
        {"lift", "channel_linear", {"at"}, {{"features", std::int64_t{3}}}},
        {"pad", "pad_far", {"lift"}, {{"widths", Numbers{2, 3}}}},
        {"spectral", "spectral_conv", {"pad"}, {{"modes", Numbers{3, 4}}}},
        {"linear", "channel_linear", {"pad"}, {{"features", std::int64_t{3}}}},
        {"sum", "residual", {"spectral", "linear"}, {}},
        {"act", "gelu", {"sum"}, {}},
        {"crop", "crop_far", {"act"}, {{"widths", Numbers{2, 3}}}},
        {"out", "channel_linear", {"crop"}, {{"features", std::int64_t{2}}}},
        {"loss", "relative_l2", {"out", spread ? "targets" : "t"}, {{"offset", 0.5}, {"scale", 2.0}}}};
    list.insert(list.end(), std::begin(rest), std::end(rest));
    return list;
  };
  const std::vector<TestField> fields{real_field("x", x), real_field("t", t)};
  Bench alone("cpu", "reference", 1);
  const Results expected = Graph(alone, nullptr, nodes({}, false), {}, fields).results("loss");
  for (int i = 0; i < 4; ++i) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    const ShardSpec sharding = random_spectral_sharding(x, mesh, true, draw);
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      Graph graph(bench, &at, nodes(sharding, true), {}, fields);
      expect_close(graph.results("loss"), graph.here(expected), 1e-11, sharding.text());
    });
    EXPECT_EQ(errors, no_errors(world.size())) << sharding.text();
  }
}

}  // namespace
}  // namespace model_parallel::fno_test
