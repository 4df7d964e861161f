// Properties P2, P4 and P5 of convolutions and pools in parts: random kernels, strides, dilations and pads
// over 1 to 3 dimensions on meshes of 1 to 8 ranks, with uneven and empty parts, against one rank; and one
// rank against the sequential layers.
#include "window_cases.hpp"

namespace model_parallel::windows_test {
namespace {

using tenon::testing::MeshRanks;

WindowCase random_case(const std::vector<int>& mesh, Draw& draw) {
  WindowCase c = draw_windows(draw, 2 * draw.integer(1, 2));
  c.groups = draw.integer(1, 2), c.features = c.groups * draw.integer(1, 3);
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    if (draw.integer(0, 5) == 0) continue;  // copies
    const std::int64_t dim = draw.integer(1, c.x.rank() - 1);
    c.dims.push_back(dim == 1 ? 0 : dim);
    c.axes.push_back(axis);
  }
  draw_sizes(c, mesh, draw);
  if (draw.integer(0, 3) == 0) c.backward = "scatter";
  c.overlap = c.backward == "gather" && draw.coin();
  if (draw.integer(0, 2) == 0) c.precision = "fp32";
  return c;
}

class Windows : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Windows, ::testing::Range(1, 9));

TEST_P(Windows, P4_AreThoseOfOneRankAndP5_GatherFormKeepsTheBitsOfDx) {
  Draw draw(400 + static_cast<unsigned>(GetParam()));
  Bench alone("cpu", "reference", 1);
  for (int w = 0; w < 4; ++w) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<WindowCase> cases;
    std::vector<Results> expected;
    for (int i = 0; i < 12; ++i) {
      cases.push_back(random_case(mesh, draw));
      expected.push_back(results(alone, cases.back(), nullptr, cases.back().type).values);
    }
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      Bench bench("cpu", "reference", 1);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const WindowCase& c = cases[i];
        const Results found = results(bench, c, &at, c.type).values;
        // Outputs, and gradients of x in gather form, are sums within one rank, in the same order everywhere.
        EXPECT_EQ(found.at("y"), expected[i].at("y")) << c.text();
        if (c.type == "conv" && c.backward == "gather") {
          EXPECT_EQ(found.at("d x"), expected[i].at("d x")) << c.text();
        }
        expect_close(found, expected[i], c.precision == "fp64" ? 1e-12 : 1e-5, c.text());
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
    c.precision = "fp64";
    expect_close(results(bench, c, nullptr, c.type).values,
                 results(bench, c, nullptr, sequential.at(c.type)).values, 1e-14, c.text());
  }
}

}  // namespace
}  // namespace model_parallel::windows_test
