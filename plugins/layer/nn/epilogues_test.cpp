// Maps fused into the sites before them: where it happens, that the numbers stay the same, and where it must
// not.
#include "cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::testing {
namespace {

using Integer = std::int64_t;
using Pair = std::vector<Integer>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// x -> site -> map -> linear, whose result is pulled.
LayerCase chain(const std::string& site, const std::string& map, std::vector<NamedOption> site_options) {
  const bool image = site == "conv2d";
  return {site + "_" + map,
          {{"site", site, {"x"}, std::move(site_options)},
           {"map", map, {"site"}, {}},
           {"flat", "flatten", {"map"}, {}},
           {"last", "linear", {"flat"}, {{"features", Integer{3}}}}},
          {"last"},
          {real_field("x", image ? Shape{5, 4, 6, 5} : Shape{5, 7})}};
}

std::vector<LayerCase> folding_cases() {
  return {chain("linear", "relu", {{"features", Integer{9}}}),
          chain("linear", "relu", {{"features", Integer{9}}, {"bias", false}}),
          chain("conv2d", "relu", {{"features", Integer{6}}, {"kernel", Pair{3}}, {"groups", Integer{2}}}),
          chain("conv2d", "relu", {{"features", Integer{6}}, {"kernel", Pair{3}}, {"chunk", Integer{2}}})};
}

class Epilogues : public ::testing::Test {
 protected:
  LayerHarness harness(Bench& bench, Precision& precision, const LayerCase& c, bool keep_values,
                       bool training) {
    return LayerHarness({.layers = &*bench.layers,
                         .device = &*bench.device,
                         .host = &bench.host,
                         .precision = &precision,
                         .training = training,
                         .keep_values = keep_values},
                        c.nodes, c.pulled, c.fields);
  }
};

// ReLU commutes with the rounding of its input, and all device paths compute it as the node does: equal bits.
TEST_F(Epilogues, AReluIsFoldedAndChangesNoBit) {
  for (const char* type : {"fp64", "fp32", "bf16"})
    for (const char* kernels : {"reference", "auto"})
      for (const LayerCase& c : folding_cases()) {
        Bench bench("cpu", kernels, 1);
        const auto precision = bench.make_component<Precision>(type, "");
        LayerHarness folded = harness(bench, *precision, c, false, true),
                     whole = harness(bench, *precision, c, true, true);
        EXPECT_THAT(folded.executor().folded_nodes(), ElementsAre("map"));
        EXPECT_THAT(whole.executor().folded_nodes(), IsEmpty()) << "keep_values asks for every value";
        const std::string where = std::string(type) + " " + kernels + " " + c.name;
        EXPECT_EQ(folded.forward(), whole.forward()) << where;
        folded.backward(1.0, true);
        whole.backward(1.0, true);
        EXPECT_EQ(folded.all_gradients(), whole.all_gradients()) << where;
        EXPECT_LT(folded.executor().activation_bytes(), whole.executor().activation_bytes());
      }
}

TEST_F(Epilogues, AMapWhoseBackwardReadsItsInputIsFoldedInEvaluationOnly) {
  for (const char* map : {"gelu", "silu", "squared_relu"}) {
    const LayerCase c = chain("linear", map, {{"features", Integer{9}}});
    for (const auto& [type, bound] :
         {std::pair{"fp64", 0.0}, std::pair{"fp32", 1e-6}, std::pair{"bf16", 0.02}}) {
      Bench bench("cpu", "auto", 1);
      const auto precision = bench.make_component<Precision>(type, "");
      LayerHarness training = harness(bench, *precision, c, false, true);
      EXPECT_THAT(training.executor().folded_nodes(), IsEmpty()) << map;
      LayerHarness folded = harness(bench, *precision, c, false, false),
                   whole = harness(bench, *precision, c, true, false);
      EXPECT_THAT(folded.executor().folded_nodes(), ElementsAre("map"));
      const double expected = whole.forward({.training = false});
      // float32: oneDNN's own GELU is within 2^-20 of ours; bfloat16: the map's input is not rounded, 2^-9 of
      // each of 9 terms.
      EXPECT_NEAR(folded.forward({.training = false}), expected, bound * (1 + std::abs(expected)))
          << type << " " << map;
    }
  }
}

TEST_F(Epilogues, NothingIsFoldedThatSomebodyElseReads) {
  Bench bench("cpu", "auto", 1);
  const auto precision = bench.make_component<Precision>("fp32", "");
  LayerCase c = chain("linear", "relu", {{"features", Integer{9}}});
  c.pulled.push_back("site");
  EXPECT_THAT(harness(bench, *precision, c, false, true).executor().folded_nodes(), IsEmpty())
      << "two readers";

  c = chain("linear", "relu", {{"features", Integer{9}}});
  c.nodes[0].type = "residual";  // no product
  c.nodes[0].inputs = {"x", "x"};
  c.nodes[0].options.clear();
  EXPECT_THAT(harness(bench, *precision, c, false, true).executor().folded_nodes(), IsEmpty()) << "no site";

  c = chain("linear", "relu", {{"features", Integer{9}}});
  c.nodes.insert(c.nodes.begin() + 2, {"again", "relu", {"map"}, {}});
  c.nodes[3].inputs = {"again"};
  EXPECT_THAT(harness(bench, *precision, c, false, true).executor().folded_nodes(), ElementsAre("map"))
      << "one map per site";

  c = chain("linear", "relu", {{"features", Integer{9}}});
  c.fields[0] = real_field("map_input", {5, 7});
  c.nodes.erase(c.nodes.begin());
  c.nodes[0].inputs = {"map_input"};
  EXPECT_THAT(harness(bench, *precision, c, false, true).executor().folded_nodes(), IsEmpty())
      << "a data field";
}

}  // namespace
}  // namespace tenon::testing
