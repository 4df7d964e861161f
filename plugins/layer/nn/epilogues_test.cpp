// Memory that nodes of a graph share. Maps fused into the sites before them: where it happens, that the
// numbers stay the same, and where it must not. Gradients that a layer passes on: one memory, where no other
// reader adds to them.
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

/// The gradient of h is larger than those after it, so that it is placed first, and over what is free by
/// then. x -> h -> a, b -> a + b -> flat -> linear, whose result is pulled.
LayerCase sum_of_two(const std::vector<std::string>& added) {
  const std::vector<NamedOption> nine{{"features", Integer{9}}};
  return {"sum",
          {{"h", "linear", {"x"}, {{"features", Integer{20}}}},
           {"a", "linear", {"h"}, nine},
           {"b", "linear", {"h"}, nine},
           {"sum", "residual", added, {}},
           {"flat", "flatten", {"sum"}, {}},
           {"last", "linear", {"flat"}, {{"features", Integer{3}}}}},
          {"last"},
          {real_field("x", Shape{5, 7})}};
}

std::size_t planned_without_reuse(LayerHarness made) {
  for (const PlanLine& line : made.executor().memory_plan())
    if (line.what == "the same without reuse") return line.bytes;
  return 0;
}

TEST_F(Epilogues, GradientsThatAreOnlyPassedOnTakeNoMemoryOfTheirOwn) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("fp64", "");
  constexpr std::size_t kValue = 5 * 9 * sizeof(double);
  const auto planned = [&](const LayerCase& c) {
    return planned_without_reuse(harness(bench, *precision, c, false, true));
  };
  // a, b, sum and flat, and one gradient for all four.
  LayerCase short_one = sum_of_two({"a", "b"});
  short_one.nodes.erase(short_one.nodes.begin() + 2, short_one.nodes.begin() + 5);
  short_one.nodes[2].inputs = {"a"};
  EXPECT_EQ(planned(sum_of_two({"a", "b"})), planned(short_one) + 3 * kValue);
  // Two readers of a: what the sum passes to it is added to.
  LayerCase pulled = sum_of_two({"a", "b"});
  pulled.pulled.push_back("a");
  const std::size_t with_a = planned(pulled);
  EXPECT_GE(with_a, planned(sum_of_two({"a", "b"})) + kValue);
}

TEST_F(Epilogues, GradientsThatAreOnlyPassedOnAreThoseOfTheSum) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("fp64", "");
  // a + a: its gradient is the sum's, twice; a + b: each of them has the sum's.
  for (const auto& added : {std::vector<std::string>{"a", "b"}, {"a", "a"}}) {
    std::string where;
    LayerHarness made = harness(bench, *precision, sum_of_two(added), false, true);
    EXPECT_LT(made.finite_difference_error(where), 1e-9) << added[1] << ", worst: " << where;
  }
}

}  // namespace
}  // namespace tenon::testing
